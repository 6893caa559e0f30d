//! A semaphore whose number alone was deleted, by hand or because the memory was full: its permits are lost, and it comes back
//! with the number that is set.

use distlock::Error;
use distlock::test_util::{Answer, Kind, PermitChange, Verbs};
use distlock_tests::RedisServer;
use tokio::time::timeout;
use uuid::Uuid;

use super::{FOREIGN, OUT, PERMANENT, SEATS, foreign, foreign_permit, free, out};
use crate::redis::{SOON, client, client_of_lease, ms};

const LEASE: std::time::Duration = ms(600_000);

/// A semaphore of so many permits, of which the owner 1 has one, without its number.
async fn without_number(server: &RedisServer, verbs: &Verbs, permits: u32) {
    let change = PermitChange::TrySet(permits);
    let set = verbs.adjust(SEATS, 100, change).await.unwrap();
    assert_eq!(set, Answer::Number(1));
    let granted = verbs.attempt(SEATS, 1, LEASE).await.unwrap();
    assert_eq!(granted, Answer::Granted);
    server.cli(&["DEL", SEATS]).await;
}

async fn verbs(server: &RedisServer) -> Verbs {
    let client = client(server).await;
    Verbs::new(&client, Uuid::from_u128(7)).of_kind(Kind::ExpirableSemaphore)
}

#[tokio::test]
async fn permits_of_a_semaphore_without_a_number_are_lost_and_no_more_are_inside_when_it_is_set() {
    for change in [
        PermitChange::TrySet(2),
        PermitChange::SetPermits(2),
        PermitChange::Add(2),
    ] {
        let server = RedisServer::start().await;
        let verbs = verbs(&server).await;
        without_number(&server, &verbs, 2).await;
        let inspected = verbs.inspect(SEATS).await.unwrap();
        assert_eq!(inspected, Answer::Holders(Vec::new(), None));
        let renewed = verbs.renew(&[(SEATS, 1, 1, LEASE)]).await.unwrap();
        assert_eq!(renewed, Answer::Renewed(vec![false]));
        let attached = verbs.instead_of(1).attempt(SEATS, 2, LEASE).await.unwrap();
        assert_eq!(attached, Answer::Held(None));
        verbs.adjust(SEATS, 101, change).await.unwrap();
        assert_eq!(free(&server, SEATS).await, Some(2), "{change:?}");
        assert_eq!(out(&server, OUT).await.len(), 0, "{change:?}");
    }
}

#[tokio::test]
async fn permits_that_are_given_back_to_a_semaphore_without_a_number_make_none() {
    let server = RedisServer::start().await;
    let verbs = verbs(&server).await;
    without_number(&server, &verbs, 3).await;
    assert_eq!(verbs.release(SEATS, 1).await.unwrap(), Answer::NotOurs);
    assert_eq!(free(&server, SEATS).await, None);
    assert_eq!(out(&server, OUT).await.len(), 0);

    for by_id in [
        PermitChange::ReleasePermit(foreign()),
        PermitChange::UpdateLease(foreign(), LEASE),
    ] {
        foreign_permit(&server, FOREIGN, PERMANENT).await;
        server.cli(&["DEL", SEATS]).await;
        let answer = verbs.adjust(SEATS, 200, by_id).await.unwrap();
        assert_eq!(answer, Answer::Number(0), "{by_id:?}");
        assert_eq!(free(&server, SEATS).await, None, "{by_id:?}");
        server.cli(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn permits_that_have_ended_make_no_number_when_they_are_taken_back() {
    let server = RedisServer::start().await;
    let verbs = verbs(&server).await;
    foreign_permit(&server, FOREIGN, 1).await;
    server.cli(&["DEL", SEATS]).await;
    let answer = verbs.attempt(SEATS, 1, LEASE).await.unwrap();
    assert_eq!(answer, Answer::Unset);
    assert_eq!(free(&server, SEATS).await, None);
}

#[tokio::test]
async fn holder_of_a_permit_is_told_when_the_number_is_gone() {
    let server = RedisServer::start().await;
    let client = client_of_lease(&server, ms(3_000)).await;
    let seats = client.expirable_semaphore(SEATS);
    assert!(seats.try_set_permits(2).await.unwrap());
    let permit = seats.acquire().await.unwrap();
    server.cli(&["DEL", SEATS]).await;
    timeout(SOON, permit.lost()).await.expect("a loss");
    let released = permit.release().await;
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    assert!(seats.try_set_permits(2).await.unwrap());
    assert_eq!(seats.permits().await.unwrap(), 2);
}
