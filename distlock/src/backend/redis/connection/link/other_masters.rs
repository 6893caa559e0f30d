//! Warns of a name that stands for several masters: programs that lock on another one do not see the locks of this client.
//!
//! Each other address of the name is asked once for each connection of the client. A server that is a replica then, or does not
//! answer, is asked again after the next connection. Two servers are told from one with two addresses by the ids of their runs,
//! so who may not ask for these is not warned.

use std::net::SocketAddr;

use super::together::Together;
use crate::backend::redis::connection::addresses::Endpoint;
use crate::backend::redis::connection::connect::{Connector, run_of_master_at};
use crate::sync::all;
use crate::telemetry;

/// The name of the server that the connections lead to stands for these addresses.
pub(super) async fn look_for_other_masters(
    connector: &Connector,
    server: &Together,
    present: &Endpoint,
    addresses: &[SocketAddr],
) {
    let others: Vec<SocketAddr> = {
        let mut looked_at = server.looked_at.lock();
        let others = addresses.iter().copied();
        let others = others.filter(|at| present.at != Some(*at));
        others.filter(|at| looked_at.is_to_ask(*at)).collect()
    };
    let asked = others.into_iter().map(|at| async move {
        let other = Endpoint {
            at: Some(at),
            ..present.clone()
        };
        let run = run_of_master_at(connector, other.clone()).await;
        Some((at, other, run.ok().flatten()?))
    });
    let masters: Vec<_> = all(asked).await.into_iter().flatten().collect();
    if masters.is_empty() {
        return;
    }
    let Ok(Some(run)) = run_of_master_at(connector, present.clone()).await else {
        return;
    };
    for (at, other, other_run) in masters {
        if other_run != run && server.looked_at.lock().is_to_tell(at) {
            telemetry::other_master(present, &run, &other, &other_run);
        }
    }
}
