//! A short connection that only asks a server what it is.

use std::net::SocketAddr;
use std::time::Duration;

use redis::{AsyncConnectionConfig, Cmd, Value};
use tokio::time::timeout;

use super::connector::Connector;
use super::driven::Driven;
use super::handshake::{self, Expected};
use super::info;
use super::rejection::{connect_or_reason, rejection};
use super::step::Step;
use crate::backend::redis::connection::addresses::{Address, Endpoint, first_of};
use crate::backend::redis::reply;
use crate::backend::{Fault, cause};
use crate::error::show;
use crate::sync::Mutex;

/// Connects to a server and asks what it is. Fails if it is not what is expected.
///
/// This takes at most half the time of a connection. The caller connects next, and has the rest of that time.
pub(crate) async fn probe(
    connector: &Connector,
    address: &Address,
    expected: Expected,
) -> Result<(), Fault> {
    let patience = connector.timeout() / 2;
    let step = Mutex::new(Step::LookUp(address.clone()));
    let probed = async {
        let endpoints = connector.endpoints(address).await?;
        let probe = |endpoint| connect_to(connector, endpoint, expected, &step, patience);
        first_of(endpoints, probe).await.map(drop)
    };
    timeout(patience, probed)
        .await
        .unwrap_or_else(|_| Err(silent(patience, &step)))
}

/// The fault of a server that has not answered within this time, with what it was not even asked for.
fn silent(patience: Duration, step: &Mutex<Step>) -> Fault {
    let step = step.lock().clone();
    Fault::NotNow(cause(format!("no answer within {}{step}", show(patience))))
}

/// What a node says that a name leads to.
pub(crate) struct NodeAnswer {
    /// The answer to the question.
    pub(crate) answer: Value,
    /// Whether the node has messages that only the nodes with a slot get.
    pub(crate) has_sharded_messages: bool,
}

/// Asks a question of a node at one of the addresses that its name stands for, over a separate connection.
pub(crate) async fn ask_node_at(
    connector: &Connector,
    address: &Address,
    at: SocketAddr,
    question: &Cmd,
) -> Result<NodeAnswer, Fault> {
    let patience = connector.timeout() / 2;
    let endpoint = Endpoint {
        address: address.clone(),
        mapped: None,
        at: Some(at),
    };
    let step = Mutex::default();
    let asked = async {
        let name = endpoint.to_string();
        let node = connect_to(connector, endpoint, Expected::Node, &step, patience);
        let mut node = node.await?;
        let commands = handshake::ask_for_commands().query_async(&mut node).await;
        handshake::has_commands(&name, commands)?;
        let has_sharded_messages = handshake::has_sharded_messages(&mut node).await?;
        let answer = question.query_async(&mut node).await;
        Ok(NodeAnswer {
            answer: answer.map_err(reply::fault)?,
            has_sharded_messages,
        })
    };
    timeout(patience, asked)
        .await
        .unwrap_or_else(|_| Err(silent(patience, &step)))
}

/// The same as [`probe`], at one of the addresses that the name of the server stands for. A server for locks has to have the
/// commands that they need.
pub(crate) async fn probe_at(
    connector: &Connector,
    endpoint: Endpoint,
    expected: Expected,
    patience: Duration,
) -> Result<(), Fault> {
    let step = Mutex::default();
    let name = endpoint.to_string();
    let connected = connect_to(connector, endpoint, expected, &step, patience);
    let mut connection = connected.await?;
    if expected == Expected::Sentinel {
        return Ok(());
    }
    let commands = handshake::ask_for_commands()
        .query_async(&mut connection)
        .await;
    handshake::has_commands(&name, commands)
}

/// The id of the run of a server that says that it is a master, at one of the addresses that a name stands for. `None` if it does
/// not say one of them.
pub(crate) async fn run_of_master_at(
    connector: &Connector,
    endpoint: Endpoint,
) -> Result<Option<String>, Fault> {
    let patience = connector.timeout() / 2;
    let step = Mutex::default();
    let asked = async {
        let server = connect_to(connector, endpoint, Expected::Server, &step, patience);
        let mut server = server.await?;
        let mut questions = redis::pipe();
        questions.cmd("INFO").arg("replication");
        questions.cmd("INFO").arg("server");
        let answers = questions.query_async::<(String, String)>(&mut server);
        let (replication, server) = answers.await.map_err(reply::fault)?;
        Ok(info::run_of_master(&replication, &server).map(str::to_owned))
    };
    timeout(patience, asked)
        .await
        .unwrap_or_else(|_| Err(silent(patience, &step)))
}

async fn connect_to(
    connector: &Connector,
    endpoint: Endpoint,
    expected: Expected,
    step: &Mutex<Step>,
    patience: Duration,
) -> Result<Driven, Fault> {
    let dial = connector.dial(&endpoint, true, step).await?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(patience))
        .set_response_timeout(Some(patience));
    let has_tls = connector.has_tls();
    let ask = || rejection(&endpoint, has_tls, expected);
    let connecting = connect_or_reason(dial.connect(config), &endpoint, has_tls, ask);
    let mut connection = connecting.await?;
    let name = endpoint.address.to_string();
    handshake::check(&name, expected, connector.client_name(), &mut connection).await?;
    Ok(connection)
}
