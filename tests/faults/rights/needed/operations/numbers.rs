//! Permits.

use super::Failed;
use crate::rights::needed::Scene;
use crate::support::SOON;

pub(super) async fn set_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    client.semaphore(&scene.key).try_set_permits(2).await?;
    Ok(())
}

pub(super) async fn acquire_permit(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let semaphore = client.semaphore(&scene.key);
    semaphore.try_set_permits(2).await?;
    let permit = semaphore.acquire().wait(SOON).await?;
    Ok(permit.release().await?)
}

pub(super) async fn set_expirable_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let semaphore = client.expirable_semaphore(&scene.key);
    semaphore.try_set_permits(2).await?;
    Ok(())
}

pub(super) async fn acquire_expirable_permit(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let semaphore = client.expirable_semaphore(&scene.key);
    semaphore.try_set_permits(2).await?;
    let permit = semaphore.acquire().wait(SOON).await?;
    Ok(permit.release().await?)
}

pub(super) async fn count_expirable_permits(scene: &Scene<'_>) -> Result<(), Failed> {
    let client = scene.client().await?;
    let semaphore = client.expirable_semaphore(&scene.key);
    semaphore.available_permits().await?;
    Ok(())
}
