use distlock::{Error, distributed_lock};

use super::ok;

pub struct Json<T>(pub T);

pub struct Order {
    pub id: u64,
    pub lines: Vec<String>,
}

#[distributed_lock(key = "<id>:<a>:<c>:<whole.0>")]
pub async fn taken_apart(
    Json(Order { id, mut lines }): Json<Order>,
    [a, .., c]: [u8; 3],
    whole @ (_, _): (u8, u8),
    mut count: usize,
    _: String,
    _unused: u8,
) -> Result<usize, Error> {
    lines.push(format!("{id}{a}{c}"));
    count += lines.len() + usize::from(whole.0);
    Ok(count)
}

#[tokio::test]
async fn runs() {
    let order = Order {
        id: 1,
        lines: Vec::new(),
    };
    let count = taken_apart(Json(order), [1, 2, 3], (1, 2), 0, String::new(), 1);
    assert_eq!(ok(count).await, 2);
}
