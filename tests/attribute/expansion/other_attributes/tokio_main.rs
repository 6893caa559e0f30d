use distlock::{Error, distributed_lock};

#[distributed_lock(key = "main", client = distlock::Client::in_memory())]
#[tokio::main]
async fn main() -> Result<(), Error> {
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
