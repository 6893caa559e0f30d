//! Row 66 on a cluster: a user whose rights change while clients use it.

use distlock_tests::{RedisCluster, rights};

use crate::rights::changed::{
    deleted_user_is_denied_until_it_is_back, holds_outlive_changed_passwords,
};
use crate::row::{Row, rows};

async fn set_user(cluster: &RedisCluster) {
    let is_sharded = cluster.has_sharded_messages().await;
    let rights = rights::in_cluster(rights::of(rights::LOCKS), is_sharded);
    cluster.set_user("shop", &rights).await;
}

async fn f66_changed_password_on_a_cluster_costs_no_hold(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    set_user(&cluster).await;
    let mut keys = Vec::new();
    for node in 0..3 {
        keys.push(cluster.key_at(node, "shop:").await);
    }
    let tell = async |words: &[&str]| cluster.each(words).await;
    holds_outlive_changed_passwords(row, &cluster.url(), &keys, tell).await;
}

async fn f66_user_that_is_deleted_on_a_cluster_is_denied_until_it_is_back(row: &Row) {
    let cluster = RedisCluster::builder().replicas(false).start().await;
    set_user(&cluster).await;
    let tell = async |words: &[&str]| cluster.each(words).await;
    let restore = async || set_user(&cluster).await;
    deleted_user_is_denied_until_it_is_back(row, &cluster.url(), tell, restore).await;
}

rows! {
    Real:
        f66_changed_password_on_a_cluster_costs_no_hold,
        f66_user_that_is_deleted_on_a_cluster_is_denied_until_it_is_back;
}
