//! Slots on their way from one node to another.

use crate::eventually::eventually;

use super::{RedisCluster, STABLE_DEADLINE};

/// How many keys go at a time.
const BATCH: &str = "100";

/// In milliseconds; a key takes far less than one.
const TIMEOUT: &str = "30000";

/// A slot that has begun to move. Dropped, it stays as it is.
#[derive(Debug)]
#[must_use = "the slot stays between two nodes until the cluster finishes or undoes this"]
pub struct HalfMigration {
    slot: usize,
    from: usize,
    to: usize,
}

impl HalfMigration {
    /// The node that has owned the slot so far, and still does.
    #[must_use]
    pub fn from(&self) -> usize {
        self.from
    }

    /// The node that gets it.
    #[must_use]
    pub fn to(&self) -> usize {
        self.to
    }
}

impl RedisCluster {
    /// Gives a slot with all its keys to another master, as an operator does, while clients go on.
    ///
    /// # Panics
    /// If a node refuses its part.
    pub async fn migrate(&self, slot: usize, to: usize) {
        let half = self.open(slot, to).await;
        self.finish(half).await;
    }

    /// Begins to move a slot, and moves every second of its keys. Commands for keys that have gone, and for keys that do
    /// not exist, are answered by ASK, and those for keys of both nodes by TRYAGAIN.
    ///
    /// # Panics
    /// If a node refuses its part.
    pub async fn half_migrate(&self, slot: usize, to: usize) -> HalfMigration {
        let half = self.open(slot, to).await;
        let keys = self.keys_in(&half, &i32::MAX.to_string()).await;
        let keys: Vec<_> = keys.into_iter().step_by(2).collect();
        self.send_keys(&half, &keys).await;
        half
    }

    /// Moves the other keys, too, and gives the slot to its new owner.
    ///
    /// # Panics
    /// If a node refuses its part.
    pub async fn finish(&self, half: HalfMigration) {
        loop {
            let keys = self.keys_in(&half, BATCH).await;
            if keys.is_empty() {
                break;
            }
            self.send_keys(&half, &keys).await;
        }
        // The new owner first: until it knows, the old one must not send clients there.
        let others = self.running().map(|(index, _)| index);
        let others = others.filter(|index| ![half.to, half.from].contains(index));
        for index in [half.to, half.from].into_iter().chain(others) {
            let id = &self.nodes[half.to].id;
            let answer = self.set_slot(index, half.slot, &["NODE", id]).await;
            // A replica hears of it from its master.
            assert!(answer.is_ok() || self.is_replica(index).await, "{answer:?}");
        }
    }

    /// Leaves the slot with the node that had it.
    ///
    /// The keys go to the other node and back, because Redis does not take back single keys: the old owner would for a time
    /// take them for keys that do not exist.
    ///
    /// # Panics
    /// If a node refuses its part.
    pub async fn undo(&self, half: HalfMigration) {
        let (slot, from) = (half.slot, half.from);
        self.finish(half).await;
        self.migrate(slot, from).await;
    }

    /// Tells both nodes that the slot is on its way.
    async fn open(&self, slot: usize, to: usize) -> HalfMigration {
        let from = self.node_of(slot).await;
        let half = HalfMigration { slot, from, to };
        assert_ne!(from, to, "slot {slot} is at node {to} already");
        // The receiver takes a number above all that it knows. If it did not know that of the sender, what the sender said of its
        // slots before could still arrive, and would win: for ever, since the sender says so no more.
        let epoch_at = async |node: usize| {
            let view = self.view_of(&self.nodes[node]).await?;
            let sender = view
                .get(&self.nodes[from])
                .ok_or("it does not know the sender")?;
            Ok::<_, String>(sender.epoch)
        };
        let knows = async || match (epoch_at(from).await?, epoch_at(to).await?) {
            (own, known) if known >= own => Ok(()),
            (own, known) => Err(format!("it knows {known} of {own}")),
        };
        eventually(
            STABLE_DEADLINE,
            "the receiver to know the sender's epoch",
            knows,
        )
        .await;
        // The receiver first: it is asked as soon as the sender knows.
        for (node, word, other) in [(to, "IMPORTING", from), (from, "MIGRATING", to)] {
            let id = &self.nodes[other].id;
            // A node that has joined has to be known first.
            let state = [word, id.as_str()];
            let told = || self.set_slot(node, slot, &state);
            eventually(STABLE_DEADLINE, format!("{word} of slot {slot}"), told).await;
        }
        half
    }

    async fn set_slot(&self, node: usize, slot: usize, state: &[&str]) -> Result<(), String> {
        let slot = slot.to_string();
        let words = [&["CLUSTER", "SETSLOT", &slot], state].concat();
        self.nodes[node].server.try_text(&words).await
    }

    async fn is_replica(&self, node: usize) -> bool {
        self.nodes[node].server.info("replication").await["role"] == "slave"
    }

    /// Keys of the slot that are still at the old owner.
    async fn keys_in(&self, half: &HalfMigration, count: &str) -> Vec<String> {
        let slot = half.slot.to_string();
        let words = ["CLUSTER", "GETKEYSINSLOT", &slot, count];
        let keys = self.nodes[half.from].server.try_text(&words).await;
        let mut keys: Vec<String> = keys.expect("a node lists the keys of a slot");
        keys.sort_unstable();
        keys
    }

    /// Keys that have gone meanwhile are left out by the server.
    async fn send_keys(&self, half: &HalfMigration, keys: &[String]) {
        if keys.is_empty() {
            return;
        }
        let port = self.nodes[half.to].own_port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", TIMEOUT];
        if let Some(login) = &self.builder.login {
            words.extend(["AUTH2", &login.user, &login.password]);
        }
        words.push("KEYS");
        words.extend(keys.iter().map(String::as_str));
        self.nodes[half.from].server.cli(&words).await;
    }
}
