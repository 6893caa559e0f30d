//! The program with distlock that a test tells what to do. The one with Redisson is in `tests/interop/redisson`.

#[tokio::main]
async fn main() -> Result<(), distlock::Error> {
    let settings = std::env::args().nth(1).expect("the settings, as JSON");
    let settings = serde_json::from_str(&settings).expect("settings in JSON");
    distlock_interop::serve::run(&settings).await
}
