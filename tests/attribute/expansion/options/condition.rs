use std::collections::BTreeSet;

use distlock::{Error, distributed_lock};

use super::{ok, run};

pub struct Shop {
    pub shared: bool,
    pub tenant: String,
}

#[derive(PartialEq)]
pub struct Level {
    pub level: u8,
}

impl Shop {
    #[distributed_lock(key = "<self.tenant>:<item>", condition = self.shared && item > 0)]
    pub async fn sell(&mut self, item: u64) -> Result<u64, Error> {
        self.shared = false;
        Ok(item)
    }

    fn is_shared(&self) -> bool {
        self.shared
    }

    #[distributed_lock(keys = [&self.tenant, ..&items], condition = self.is_shared())]
    pub async fn close(self, items: BTreeSet<String>) -> Result<Self, Error> {
        Ok(self)
    }
}

// The expansion does not put the expression behind `if`, where a struct literal would need parentheses.
#[distributed_lock(key = "level", condition = Level { level: 1 } == level)]
pub async fn literal(level: Level) -> Result<Level, Error> {
    Ok(level)
}

#[distributed_lock(key = "day", condition = if let Some(day) = &day { day.len() > 1 } else { false }, on_error = |_| 0)]
pub async fn block(day: Option<String>) -> usize {
    day.map_or(0, |day| day.len())
}

#[distributed_lock(key = "always", condition = true)]
pub async fn always() -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn runs() {
    let mut shop = Shop {
        shared: true,
        tenant: "a".to_owned(),
    };
    assert_eq!(ok(shop.sell(1)).await, 1);
    assert!(!ok(shop.close(BTreeSet::new())).await.shared);
    assert_eq!(ok(literal(Level { level: 1 })).await.level, 1);
    assert_eq!(run(block(None)).await, 0);
    assert_eq!(run(block(Some("monday".to_owned()))).await, 6);
    ok(always()).await;
}
