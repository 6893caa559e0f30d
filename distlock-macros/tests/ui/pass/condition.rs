#![deny(warnings, clippy::pedantic)]

use std::collections::BTreeSet;

use distlock::{Error, distributed_lock};

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

// As in any expression: what would be a block behind `if` needs no parentheses here.
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

fn main() {
    let shop = Shop {
        shared: true,
        tenant: String::new(),
    };
    let _future = shop.close(BTreeSet::new());
    let _future = literal(Level { level: 2 });
    let _future = block(None);
    let _future = always();
}
