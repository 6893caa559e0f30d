use super::*;

#[distributed_lock(key = "k")]
async fn default_client(here: &Client) -> Result<bool, Error> {
    Ok(held(here, "k").await)
}

struct App(Client);

impl App {
    #[distributed_lock(key = "k", client = self.0)]
    async fn method(&self) -> Result<bool, Error> {
        Ok(held(&self.0, "k").await)
    }
}

// One test, because the installed client is that of the whole process.
#[tokio::test]
async fn given_client_wins_over_scoped_over_installed_and_none_is_an_error() {
    let (given, scoped, installed) = (
        Client::in_memory(),
        Client::in_memory(),
        Client::in_memory(),
    );
    let error = default_client(&installed).await.unwrap_err();
    assert!(error.is_permanent(), "{error:?}");
    installed.install();
    assert!(default_client(&installed).await.unwrap());
    with_client(&scoped, async {
        assert!(default_client(&scoped).await.unwrap());
        assert!(App(given).method().await.unwrap());
        let (spawned, inherited) = (scoped.clone(), scoped.clone());
        let spawned = tokio::spawn(async move { default_client(&spawned).await });
        assert!(!spawned.await.unwrap().unwrap());
        let inherited = tokio::spawn(inherit(async move { default_client(&inherited).await }));
        assert!(inherited.await.unwrap().unwrap());
    })
    .await;
}

#[distributed_lock(key = "k", client = servers, wait = 0)]
async fn on_a_majority(servers: &Quorum) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "k", client = locks, wait = 0)]
async fn on_either(locks: LockSource) -> Result<(), Error> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn redlock_needs_a_majority() {
    let servers: Vec<_> = (0..3).map(|_| Client::in_memory()).collect();
    let red_lock = Quorum::new(servers.clone());
    let _minority = servers[0].lock("k").acquire().await.unwrap();
    soon(on_a_majority(&red_lock)).await.unwrap();
    soon(on_either(LockSource::from(&red_lock))).await.unwrap();
    let _majority = servers[1].lock("k").acquire().await.unwrap();
    for refused in [
        soon(on_a_majority(&red_lock)).await,
        soon(on_either(red_lock.into())).await,
    ] {
        let error = refused.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
    }
    soon(on_either(servers[2].clone().into())).await.unwrap();
}

#[distributed_lock(key = "k", client = servers, mode = fair)]
async fn fair(servers: Quorum) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["a", ..more], client = servers)]
async fn several(servers: Quorum, more: Option<&str>) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn redlock_with_several_keys_or_in_fair_mode_is_unsupported() {
    let servers = Quorum::new([Client::in_memory()]);
    for refused in [
        fair(servers.clone()).await,
        several(servers.clone(), Some("b")).await,
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    }
    several(servers, None).await.unwrap();
}
