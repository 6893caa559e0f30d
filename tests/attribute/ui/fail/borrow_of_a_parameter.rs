use distlock::{Error, distributed_lock};

#[distributed_lock(key = "pay")]
async fn pay<'a>(names: &mut Vec<&'a str>, name: String) -> Result<(), Error> {
    names.push(&name);
    Ok(())
}

fn main() {}
