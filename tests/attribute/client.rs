use futures_util::FutureExt;

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

/// What a test does that was written without a thought of other tests: code of the program, in tasks and on threads, that
/// names no client.
async fn runs_everywhere_on_the_installed_client() {
    let client = Client::in_memory();
    let _installed = client.install_scoped();
    let here = || default_client_of(client.clone());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(here());
    tasks.spawn(tokio::spawn(here()).map(Result::unwrap));
    let (handle, blocking) = (tokio::runtime::Handle::current(), here());
    tasks.spawn_blocking(move || handle.block_on(blocking));
    assert_eq!(tasks.join_all().await, [true; 3]);
}

async fn default_client_of(client: Client) -> bool {
    default_client(&client).await.expect("granted")
}

#[test]
fn tests_side_by_side_with_a_client_installed_in_each_do_not_disturb_each_other() {
    let all_at_once = std::sync::Barrier::new(10);
    std::thread::scope(|scope| {
        for test in 0..10 {
            let all_at_once = &all_at_once;
            scope.spawn(move || {
                let mut builder = match test % 2 {
                    0 => tokio::runtime::Builder::new_current_thread(),
                    _ => tokio::runtime::Builder::new_multi_thread(),
                };
                let runtime = builder.worker_threads(2).enable_all().build().unwrap();
                all_at_once.wait();
                for _ in 0..20 {
                    runtime.block_on(runs_everywhere_on_the_installed_client());
                }
            });
        }
    });
}

#[tokio::test(start_paused = true)]
async fn client_of_with_client_goes_before_the_one_of_the_runtime() {
    let (scoped, of_runtime) = (Client::in_memory(), Client::in_memory());
    let _installed = of_runtime.install_scoped();
    let ran = with_client(&scoped, default_client(&scoped)).await;
    assert!(ran.unwrap());
    assert!(default_client(&of_runtime).await.unwrap());
}

#[tokio::test]
async fn inherited_work_in_a_task_a_join_set_and_a_blocking_thread_uses_the_scoped_client() {
    let client = Client::in_memory();
    let here = || inherit(default_client_of(client.clone()));
    with_client(&client, async {
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(here());
        tasks.spawn(tokio::spawn(here()).map(Result::unwrap));
        let (handle, blocking) = (tokio::runtime::Handle::current(), here());
        tasks.spawn_blocking(move || handle.block_on(blocking));
        assert_eq!(tasks.join_all().await, [true; 3]);
    })
    .await;
}

#[tokio::test]
async fn quorum_is_the_client_of_attributes_that_name_none() {
    let servers = [(); 3].map(|()| Client::in_memory());
    let (installed, scoped) = (Quorum::new(servers.clone()), Client::in_memory());
    let _installed = installed.install_scoped();
    for server in &servers {
        assert!(default_client(server).await.unwrap());
    }
    assert!(!default_client(&scoped).await.unwrap());
    let scoped_quorum = Quorum::new([scoped.clone()]);
    let ran = with_client(scoped_quorum, default_client(&scoped)).await;
    assert!(ran.unwrap());
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
