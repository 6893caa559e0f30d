//! Each primitive tells its key.

use std::time::Duration;

use distlock::{Client, Member, MemoryServer, MultiLock, Quorum};

#[test]
fn every_primitive_tells_its_key_without_the_prefix_and_also_if_it_is_invalid() {
    let client = Client::builder().key_prefix("shop:");
    let client = client.in_memory(&MemoryServer::new()).unwrap();
    let long = "k".repeat(5000);
    for key in ["order:42", "", &long] {
        let rw = client.rw_lock(key);
        let told = [
            client.lock(key).key().to_owned(),
            client.fair_lock(key).key().to_owned(),
            client.fenced_lock(key).key().to_owned(),
            client.spin_lock(key).key().to_owned(),
            rw.key().to_owned(),
            rw.read().key().to_owned(),
            rw.write().key().to_owned(),
            client.semaphore(key).key().to_owned(),
            client.expirable_semaphore(key).key().to_owned(),
            client.count_down_latch(key).key().to_owned(),
            client.leader(key).key().to_owned(),
            Quorum::new([client.clone()]).lock(key).key().to_owned(),
            Quorum::new([]).lock(key).key().to_owned(),
        ];
        assert!(told.iter().all(|told| told == key), "{told:?}");
        // Too long a time makes the key unusable as well.
        let endless = client.semaphore(key).expire_after(Duration::MAX);
        assert_eq!(endless.key(), key);
    }
}

#[test]
fn multi_lock_tells_its_keys_as_they_were_given() {
    let (one, two) = (Client::in_memory(), Client::in_memory());
    let keys = ["b", "a", "b", ""];
    assert_eq!(one.multi_lock(keys).keys().collect::<Vec<_>>(), keys);
    let members: [Member; 2] = [two.fair_lock("b").into(), one.lock("a").into()];
    let both = MultiLock::of(members);
    assert_eq!(both.keys().collect::<Vec<_>>(), ["b", "a"]);
}
