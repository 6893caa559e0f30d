//! A fault of a real server, of the wire to it, or of a process.

use std::time::Duration;

use distlock_tests::proxy::{Flow, Role, Select, Way};

use super::ground::Ground;

/// A fault of a real server, its wire or a process.
#[derive(Clone, Debug)]
pub(super) enum WireFault {
    /// The server is killed, and started again afterwards.
    KillServer,
    /// The server is stopped, and continued afterwards.
    StopServer,
    /// `CLIENT PAUSE`.
    Pause,
    /// `DEBUG SLEEP`.
    Sleep,
    /// `CLIENT KILL` of this type.
    KillClients(&'static str),
    /// `SCRIPT FLUSH`.
    ForgetScripts,
    /// `FLUSHALL`.
    Flush,
    /// `DEL` of one lock.
    Wipe(String),
    /// `maxmemory 1`.
    OutOfMemory,
    /// The user may run no scripts.
    Deny,
    /// Bytes are delayed, held up or cut into pieces.
    Flow(Select, Way, Flow),
    /// Connections are reset.
    Cut(Select),
    /// A connection is reset after so many bytes.
    CutAfter(Way, usize),
    /// Connections are closed in one direction.
    Close(Way),
    /// New connections are refused, and the present ones are reset.
    Refuse,
    /// A command takes effect, and its reply is lost.
    EatReply,
    /// A command takes effect much later.
    Hold,
    /// The present connections carry nothing any more, and nobody closes them before the run ends. New ones work.
    Silence(Role),
    /// A child process is stopped, and continued afterwards.
    StopChild,
    /// A child process is killed, and another one is started.
    KillChild,
    /// A thread of the tester's own runtime is blocked.
    Block,
    /// The slot of this lock moves to another node.
    MoveSlot(String),
    /// The slot of this lock begins to move, and stays between the nodes for some time.
    LeaveSlot(String),
    /// A node joins, gets the slots of these locks, is emptied again, and leaves.
    JoinNode(Vec<String>),
    /// A planned failover: of the node that has this lock, or of the service.
    FailOver(String),
    /// The master of a lock is killed and replaced.
    KillMaster {
        /// Which lock.
        key: String,
        /// Whether it served for a while without replicas before. Then they lack its last grants for sure.
        unreplicated: bool,
    },
    /// The master of this lock is stopped, and continued afterwards. It may be replaced meanwhile.
    StopMaster(String),
    /// All nodes of the shard that has this lock are gone for some seconds.
    LoseShard {
        /// Which lock.
        key: String,
        /// Whether the master is killed and loses its data, or stands still.
        killed: bool,
    },
    /// So many Sentinels are killed, and started again afterwards.
    KillSentinels(usize),
}

/// A failover that nobody planned is over after some 3 s.
const FAILOVER: Duration = Duration::from_secs(5);

/// A shard is gone for 5 s, and the cluster is well again some 3 s after that.
const SHARD_LOST: Duration = Duration::from_secs(9);

/// A node joins within some 3 s, and leaves within 1 s.
const JOINED: Duration = Duration::from_secs(5);

impl WireFault {
    /// Whether it is one of the servers and their data, and not of the wire or of a process.
    pub(super) fn is_of_servers(&self) -> bool {
        match self {
            Self::KillServer
            | Self::StopServer
            | Self::Pause
            | Self::Sleep
            | Self::KillClients(_)
            | Self::ForgetScripts
            | Self::Flush
            | Self::Wipe(_)
            | Self::OutOfMemory
            | Self::Deny
            | Self::MoveSlot(_)
            | Self::LeaveSlot(_)
            | Self::JoinNode(_)
            | Self::FailOver(_)
            | Self::KillMaster { .. }
            | Self::StopMaster(_)
            | Self::LoseShard { .. }
            | Self::KillSentinels(_) => true,
            Self::Flow(..)
            | Self::Cut(_)
            | Self::CutAfter(..)
            | Self::Close(_)
            | Self::Refuse
            | Self::EatReply
            | Self::Hold
            | Self::Silence(_)
            | Self::StopChild
            | Self::KillChild
            | Self::Block => false,
        }
    }

    /// Whether a replica may become the master.
    pub(super) fn fails_over(&self) -> bool {
        matches!(
            self,
            Self::FailOver(_) | Self::KillMaster { .. } | Self::StopMaster(_)
        )
    }

    /// Whether data may be gone after it.
    pub(super) fn loses_data(&self, ground: Ground) -> bool {
        match self {
            Self::Flush | Self::Wipe(_) | Self::KillMaster { .. } | Self::StopMaster(_) => true,
            Self::LoseShard { killed, .. } => *killed,
            // In a cluster the old master waits for the new one.
            Self::FailOver(_) => ground == Ground::Sentinel,
            _ => false,
        }
    }

    /// How long it may take, if it is planned to last for `length`.
    pub(super) fn takes(&self, length: Duration) -> Duration {
        match self {
            Self::KillMaster { .. } | Self::StopMaster(_) => length.max(FAILOVER),
            Self::LoseShard { .. } => SHARD_LOST,
            Self::JoinNode(_) => length + JOINED,
            _ => length,
        }
    }

    pub(super) fn kind(&self) -> String {
        let text = format!("{self:?}");
        match self {
            Self::Flow(_, _, flow) => format!("{flow:?}"),
            Self::KillClients(of) => format!("KillClients {of}"),
            _ => text,
        }
        .split(['(', ' '])
        .take(2)
        .filter(|word| word.chars().all(char::is_alphabetic))
        .collect::<Vec<_>>()
        .join(" ")
    }
}
