//! A program with a console, on a Redis that the test has for itself.

use axum::Router;
use distlock::Client;
use distlock_tests::RedisServer;
use distlock_tower::Console;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A program that serves a console at `/admin/locks`.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) url: String,
    pub(crate) client: Client,
    serves: JoinHandle<()>,
}

impl Site {
    /// With a console that may free locks.
    pub(crate) async fn start() -> (RedisServer, Self) {
        Self::of(|console| {
            let console = console.allow_force_release();
            console.who(|_| String::from("somebody"))
        })
        .await
    }

    pub(crate) async fn of(settings: impl FnOnce(Console) -> Console) -> (RedisServer, Self) {
        let server = RedisServer::start().await;
        let client = client(&server, "watcher").await;
        let site = Self::serve(client, settings).await;
        (server, site)
    }

    pub(crate) async fn serve(client: Client, settings: impl FnOnce(Console) -> Console) -> Self {
        let console = settings(distlock_tower::console(client.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/admin/locks", listener.local_addr().unwrap());
        let app: Router = Router::new().nest_service("/admin/locks", Router::from(console));
        let serves = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url,
            client,
            serves,
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

pub(crate) async fn client(server: &RedisServer, name: &str) -> Client {
    let builder = Client::builder().name(name);
    builder.connect(&server.url()).await.unwrap()
}

/// Puts locks into the server, as clients write them: `order:00000` and so on.
pub(crate) async fn many_locks(server: &RedisServer, locks: u32) {
    let mut pipeline = redis::pipe();
    for number in 0..locks {
        let key = format!("order:{number:05}");
        let owner = "3f2504e0-4f89-41d3-9a0c-0305e82c3301:1";
        pipeline.hset(&key, owner, 1).ignore();
        pipeline.pexpire(&key, 600_000).ignore();
    }
    let mut connection = server.connection().await;
    pipeline.query_async::<()>(&mut connection).await.unwrap();
}
