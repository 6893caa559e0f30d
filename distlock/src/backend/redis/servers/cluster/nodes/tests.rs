//! Channels whose slot gets another owner. There is no runtime, so nothing is connected to.

use super::super::follow::Next;
use super::*;
use crate::backend::redis::connection::Connector;
use crate::backend::redis::connection::url::Tls;
use crate::backend::redis::reply::Elsewhere;
use crate::backend::redis::slot::slot_of;
use crate::clock::Clock;
use crate::config::{Config, PubSub};
use crate::resource::identity::Identity;

const CHANNEL: &str = "redisson_lock__channel:{k}";

fn address(port: u16) -> Address {
    Address::Tcp {
        host: "127.0.0.1".to_owned(),
        port,
    }
}

/// A cluster in which the first node has all slots.
fn cluster() -> Arc<Cluster> {
    let config = Config::default();
    let (identity, name) = (Identity::new(), "test".to_owned());
    let connector = Connector::new(0, None, identity, name, Tls::Off, &config).unwrap();
    let shared = Shared::new(connector, &config, Clock::tokio());
    let cluster = Cluster::new(vec![address(1), address(2)], shared, PubSub::Auto);
    cluster.nodes.set_publish(Publish::Sharded);
    give_all(&cluster.nodes, 1);
    cluster
}

/// The node at this port has all slots from now on.
fn give_all(nodes: &Nodes, port: u16) {
    let all = OwnedSlots {
        slots: 0..=16_383,
        owner: address(port),
    };
    let map = ClusterMap {
        owned: vec![all],
        named: NamedNodes::default(),
    };
    assert!(nodes.replace(map, nodes.publishes(), nodes.moves()));
}

/// The node at which the channel is subscribed.
fn node_of_channel(nodes: &Nodes) -> ServerNumber {
    let servers = nodes.shared.subscriptions.servers();
    let [(_, number)] = &servers[..] else {
        panic!("{servers:?}");
    };
    *number
}

#[test]
fn channel_whose_slot_moves_while_it_is_joined_is_subscribed_at_the_new_node() {
    let cluster = cluster();
    let (nodes, slot) = (&cluster.nodes, slot_of(CHANNEL));
    let before = nodes.node(slot).node;
    give_all(nodes, 2);
    let _subscription = nodes.subscribe_at(&before, slot, CHANNEL.to_owned());
    let now = nodes.node(slot).node;
    assert_ne!(now.number(), before.number());
    assert_eq!(node_of_channel(nodes), now.number());
}

#[test]
fn channel_that_a_node_sends_elsewhere_goes_there_although_the_client_knew_the_new_node() {
    let cluster = cluster();
    let (nodes, slot) = (&cluster.nodes, slot_of(CHANNEL));
    let before = nodes.node(slot).node;
    give_all(nodes, 2);
    let _subscription = before.subscriber().subscribe(CHANNEL.to_owned());
    assert_eq!(node_of_channel(nodes), before.number());
    let redirect = Elsewhere::Moved(format!("{slot} {}", address(2)));
    cluster.subscriptions_sent_elsewhere(before.number(), &[redirect]);
    assert_eq!(node_of_channel(nodes), nodes.node(slot).node.number());
}

#[test]
fn channels_that_a_node_sends_elsewhere_in_one_answer_move_in_one_step() {
    let cluster = cluster();
    let nodes = &cluster.nodes;
    let names = (0..100).map(|at| format!("redisson_lock__channel:{{k{at}}}"));
    let names: Vec<String> = names.collect();
    let subscribed = names
        .iter()
        .map(|name| nodes.subscribe(slot_of(name), name.clone()));
    let _subscriptions: Vec<_> = subscribed.collect();
    let before = nodes.node(slot_of(&names[0])).node;
    let redirects = names
        .iter()
        .map(|name| Elsewhere::Moved(format!("{} {}", slot_of(name), address(2))));
    let redirects: Vec<_> = redirects.collect();
    let changes = nodes.shared.epochs.changes();
    cluster.subscriptions_sent_elsewhere(before.number(), &redirects);
    assert_eq!(nodes.shared.epochs.changes(), changes + 1);
    let now = nodes.node(slot_of(&names[0])).node.number();
    assert_ne!(now, before.number());
    let servers = nodes.shared.subscriptions.servers();
    assert_eq!(servers.len(), names.len());
    assert!(servers.iter().all(|(_, number)| *number == now));
}

#[test]
fn redirect_by_a_node_that_the_client_has_forgotten_teaches_nothing_and_is_no_error() {
    let cluster = cluster();
    let (nodes, slot) = (&cluster.nodes, slot_of(CHANNEL));
    let before = nodes.node(slot).node;
    give_all(nodes, 2);
    let owner = nodes.node(slot).node.number();
    // The slot has moved on from the node that it says.
    for redirect in [Elsewhere::Moved, Elsewhere::Ask] {
        let redirect = redirect(format!("{slot} {}", address(3)));
        let next = cluster.sent_elsewhere(&before, &redirect).unwrap();
        assert!(matches!(next, Next::Owner));
        assert_eq!(nodes.node(slot).node.number(), owner);
    }
}
