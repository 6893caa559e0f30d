//! Which operation needs which right. A right of the guide that is not here fails the test, and so does one that its
//! operation does not miss.

use super::operations as op;
use super::operations::Operation;

/// For each list of the guide, its rights with an operation that fails without it.
///
/// The key of the operation has a hash tag where the right is a pattern for such keys.
pub(super) const TABLE: &[(&str, &[(&str, Operation)])] = &[
    (
        "locks",
        &[
            ("~shop:*", op::ACQUIRE),
            ("&redisson_lock__channel:{shop:*", op::TELL),
            ("&redisson_lock__channel:shop:*", op::TELL),
            ("+ping", op::LISTEN_IN_SILENCE),
            ("+evalsha", op::ACQUIRE),
            ("+eval", op::ACQUIRE_WITH_SCRIPTS_FORGOTTEN),
            ("+subscribe", op::LISTEN),
            ("+unsubscribe", op::STOP_LISTENING),
            ("+publish", op::TELL),
            ("+exists", op::ACQUIRE),
            ("+hexists", op::ACQUIRE_HELD),
            ("+hget", op::HOLDERS),
            ("+hset", op::ACQUIRE),
            ("+hdel", op::RELEASE),
            ("+hkeys", op::FORCE_RELEASE),
            ("+hlen", op::FORCE_RELEASE),
            ("+pexpire", op::ACQUIRE),
            ("+pttl", op::HOLDERS),
            ("+del", op::FORCE_RELEASE),
        ],
    ),
    (
        "warning of a server that evicts locks",
        &[("+info", op::WARN_OF_EVICTION)],
    ),
    (
        "losses told at once",
        &[
            ("+client|tracking", op::HEAR_OF_LOSS),
            ("+client|caching", op::HEAR_OF_LOSS),
        ],
    ),
    (
        "name of the driver in CLIENT LIST, on Valkey, and on Redis 7.2 and later",
        &[("+client|setinfo", op::NAME_OF_DRIVER)],
    ),
    (
        "Redis Cluster",
        &[
            ("+cluster|slots", op::ACQUIRE),
            ("+asking", op::ACQUIRE_IN_MOVING_SLOT),
        ],
    ),
    (
        "Redis Cluster, messages",
        &[
            ("+ssubscribe", op::LISTEN),
            ("+sunsubscribe", op::STOP_LISTENING),
            ("+spublish", op::TELL),
        ],
    ),
    (
        "Redis Cluster, listeners in a report",
        &[("+pubsub|shardnumsub", op::COUNT_LISTENERS)],
    ),
    (
        "looks at locks",
        &[
            ("~{shop:*", op::INSPECT),
            ("~redisson_lock_token:{shop:*", op::INSPECT),
            ("~redisson_lock_token:shop:*", op::INSPECT),
            ("~redisson_lock_queue:{shop:*", op::INSPECT),
            ("~redisson_lock_queue:shop:*", op::INSPECT),
            ("~redisson_lock_timeout:{shop:*", op::INSPECT),
            ("~redisson_lock_timeout:shop:*", op::INSPECT),
            ("+time", op::INSPECT),
            ("+type", op::INSPECT),
            ("+getrange", op::INSPECT),
            ("+hscan", op::INSPECT),
            ("+llen", op::INSPECT),
            ("+lrange", op::INSPECT),
            ("+zscore", op::INSPECT),
            ("+zcount", op::INSPECT),
            ("+zrangebyscore", op::INSPECT),
            ("+scan", op::SCAN),
            ("+client|list", op::NAME_CLIENTS),
            ("+pubsub|numsub", op::COUNT_LISTENERS),
        ],
    ),
    (
        "fenced lock",
        &[
            ("~redisson_lock_token:{shop:*", op::FENCED_ACQUIRE),
            ("~redisson_lock_token:shop:*", op::FENCED_ACQUIRE),
            ("+get", op::FENCED_ACQUIRE),
            ("+set", op::FENCED_ACQUIRE),
            ("+incr", op::FENCED_ACQUIRE),
            ("+time", op::FENCED_ACQUIRE),
        ],
    ),
    (
        "fair lock, also non-reentrant",
        &[
            ("~{shop:*", op::FAIR_ACQUIRE),
            ("~redisson_lock_queue:{shop:*", op::FAIR_ACQUIRE),
            ("~redisson_lock_queue:shop:*", op::FAIR_ACQUIRE),
            ("~redisson_lock_timeout:{shop:*", op::FAIR_RELEASE),
            ("~redisson_lock_timeout:shop:*", op::FAIR_RELEASE),
            ("+time", op::FAIR_ACQUIRE),
            ("+pexpireat", op::FAIR_WAIT),
            ("+lindex", op::FAIR_ACQUIRE),
            ("+linsert", op::FAIR_COME_BACK),
            ("+llen", op::FAIR_WAIT),
            ("+lrange", op::FAIR_COME_BACK),
            ("+lrem", op::FAIR_ACQUIRE),
            ("+rpush", op::FAIR_WAIT),
            ("+zadd", op::FAIR_WAIT),
            ("+zcard", op::FAIR_WAIT),
            ("+zrange", op::FAIR_ACQUIRE),
            ("+zrem", op::FAIR_ACQUIRE),
            ("+zscore", op::FAIR_RELEASE),
        ],
    ),
    (
        "read/write lock",
        &[
            ("~{shop:*", op::READ_ACQUIRE),
            ("&redisson_rwlock:{shop:*", op::TELL_OF_READERS),
            ("&redisson_rwlock:shop:*", op::TELL_OF_READERS),
            ("+get", op::WRITE_ACQUIRE),
            ("+set", op::READ_ACQUIRE),
            ("+hmget", op::READ_ACQUIRE),
            ("+hrandfield", op::READERS_LEAVE),
        ],
    ),
    (
        "semaphore, count-down latch",
        &[
            ("~{shop:*", op::SET_PERMITS),
            ("&redisson_sc:{shop:*", op::TELL_OF_PERMITS),
            ("&redisson_sc:shop:*", op::TELL_OF_PERMITS),
            (
                "&redisson_countdownlatch__channel__{shop:*",
                op::TELL_OF_LATCH,
            ),
            ("+get", op::SET_PERMITS),
            ("+set", op::SET_PERMITS),
            ("+incrby", op::ACQUIRE_PERMIT),
        ],
    ),
    (
        "expirable semaphore",
        &[
            ("~{shop:*", op::SET_EXPIRABLE_PERMITS),
            ("&redisson_sc:{shop:*", op::TELL_OF_EXPIRABLE_PERMITS),
            ("&redisson_sc:shop:*", op::TELL_OF_EXPIRABLE_PERMITS),
            ("+get", op::SET_EXPIRABLE_PERMITS),
            ("+set", op::SET_EXPIRABLE_PERMITS),
            ("+incrby", op::SET_EXPIRABLE_PERMITS),
            ("+decrby", op::ACQUIRE_EXPIRABLE_PERMIT),
            ("+time", op::ACQUIRE_EXPIRABLE_PERMIT),
            ("+zadd", op::ACQUIRE_EXPIRABLE_PERMIT),
            ("+zcard", op::ACQUIRE_EXPIRABLE_PERMIT),
            ("+zcount", op::COUNT_EXPIRABLE_PERMITS),
            ("+zrangebyscore", op::ACQUIRE_EXPIRABLE_PERMIT),
            ("+zrem", op::ACQUIRE_EXPIRABLE_PERMIT),
            ("+zscore", op::ACQUIRE_EXPIRABLE_PERMIT),
        ],
    ),
];
