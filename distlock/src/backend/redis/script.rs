//! The Lua scripts, one file each, and how they are sent: by EVALSHA, and after a NOSCRIPT error by EVAL.
//!
//! SCRIPT LOAD is not used: EVAL stores the script in the server as well, in a single round trip, and the user needs
//! one permission less.

use std::borrow::Cow;
use std::iter::repeat_n;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};

use redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::backend::Seen;
use crate::config::PubSub;
use crate::resource::owner::{OWNER_BUFFER, Owner};

/// How the scripts publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Publish {
    /// By PUBLISH. In a cluster, every node gets the message.
    Plain,
    /// By SPUBLISH: only the nodes that have the slot of the channel get the message.
    Sharded,
    /// Both ways.
    Both,
}

impl Publish {
    /// How a client with this setting publishes at a cluster.
    pub(super) fn by(setting: PubSub, has_sharded_messages: bool) -> Self {
        match setting {
            PubSub::Auto if has_sharded_messages => Self::Sharded,
            PubSub::Both if has_sharded_messages => Self::Both,
            PubSub::Auto | PubSub::Both | PubSub::Plain => Self::Plain,
        }
    }
}

/// How a command names its script.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Digest,
    /// For a server that does not know the digest. It stores the script then.
    Source,
}

/// A script, in the variants for all ways to publish.
pub(crate) struct Script {
    /// A number that no other script has.
    number: u32,
    plain: Text,
    sharded: OnceLock<Text>,
    both: OnceLock<Text>,
}

/// The text of a script, and its digest.
struct Text {
    source: Cow<'static, str>,
    digest: String,
}

/// A part of a script: a file, or a line in braces that joins files.
macro_rules! part {
    ({ $line:literal }) => {
        concat!($line, "\n")
    };
    ($file:literal) => {
        include_str!($file)
    };
}

/// Declares the scripts, and the same list for the tests.
///
/// Most begin with files of functions that they share. Each call of a script makes its functions anew, which is a tenth of what a lock
/// costs the server, so the scripts of each pair are files of statements: a script of one lock begins with their inputs, and the batch makes
/// functions of them.
macro_rules! scripts {
    ($($name:ident = $($part:tt),+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(part!($part)),+)));)*

        /// Each script, by its name.
        #[cfg(any(test, feature = "test-util"))]
        pub(crate) const SOURCES: &[(&str, &str)] = &[$((stringify!($name), concat!($(part!($part)),+))),*];
    };
}

scripts! {
    COMMANDS_CHECK = "scripts/commands_check.lua";
    RIGHTS_CHECK = "scripts/rights_check.lua";
    PROBE = "scripts/publish.lua", "scripts/probe.lua";
    LOCK_ACQUIRE = "scripts/lock_acquire.lua", "scripts/acquire_free.lua", "scripts/held.lua", "scripts/acquire_held.lua";
    LOCK_ATTACH = "scripts/lock_attach.lua";
    LOCK_RENEW = "scripts/master.lua", "scripts/lock_renew.lua";
    LOCK_RELEASE = "scripts/lock_release.lua", "scripts/release.lua", "scripts/publish.lua", { "return told(notified(heard))" };
    LOCK_BATCH = "scripts/publish.lua", "scripts/held.lua",
        { "local function acquire(lock, owner, lease)" }, "scripts/acquire_free.lua", "scripts/acquire_held.lua", { "end" },
        { "local function acquire_all(from, many, at)" }, "scripts/acquire_all.lua", { "return { refused + 1, held(KEYS[from + refused]) }" }, { "end" },
        { "local function release(lock, owner, channel)" }, "scripts/release.lua", { "return notified(heard) end" },
        { "local function release_all(from, many, at)" }, "scripts/release_all.lua", { "for i, of_lock in ipairs(heard) do heard[i] = notified(of_lock) end" }, { "return heard end" },
        "scripts/lock_batch.lua";
    LOCK_KEEP = "scripts/publish.lua", "scripts/lock_keep.lua";
    LOCK_FORCE_RELEASE = "scripts/publish.lua", "scripts/owner.lua", "scripts/force_release.lua", "scripts/seen.lua", "scripts/lock_force_release.lua";
    LOCK_INSPECT = "scripts/owner.lua", "scripts/lock_inspect.lua";
    LOCK_ACQUIRE_ALL = "scripts/lock_acquire_all.lua", "scripts/acquire_all.lua", "scripts/held.lua", { "return { refused + 1, held(KEYS[from + refused]) }" };
    LOCK_RELEASE_ALL = "scripts/lock_release_all.lua", "scripts/release_all.lua", "scripts/publish.lua", { "for i, of_lock in ipairs(heard) do heard[i] = notified(of_lock) end" }, { "return told(heard)" };
    FENCED_ACQUIRE = "scripts/owner.lua", "scripts/held.lua", "scripts/fenced_acquire.lua";
    PERMIT_ACQUIRE = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_acquire.lua";
    PERMIT_ATTACH = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_attach.lua";
    PERMIT_RENEW = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/master.lua", "scripts/permit_renew.lua";
    PERMIT_RELEASE = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_release.lua";
    PERMIT_DELETE = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/seen.lua", "scripts/permit_delete.lua";
    PERMIT_INSPECT = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_inspect.lua";
    PERMIT_COUNT = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_count.lua";
    PERMIT_SET = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_set.lua";
    PERMIT_RELEASE_ONE = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_release_one.lua";
    PERMIT_UPDATE_LEASE = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_update_lease.lua";
    PERMIT_REMAINING = "scripts/publish.lua", "scripts/number.lua", "scripts/permit.lua", "scripts/permit_remaining.lua";
    FAIR_ACQUIRE = "scripts/publish.lua", "scripts/owner.lua", "scripts/fair_queue.lua", "scripts/held.lua", "scripts/fair_acquire.lua";
    FAIR_RELEASE = "scripts/publish.lua", "scripts/owner.lua", "scripts/fair_queue.lua", "scripts/fair_release.lua";
    FAIR_FORCE_RELEASE = "scripts/publish.lua", "scripts/owner.lua", "scripts/force_release.lua", "scripts/seen.lua", "scripts/fair_queue.lua", "scripts/fair_force_release.lua";
    RW_READ_ACQUIRE = "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/rw_live_reader.lua", "scripts/rw_acquire_readers.lua", "scripts/rw_read_acquire.lua";
    RW_READ_RELEASE = "scripts/publish.lua", "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/rw_live_reader.lua", "scripts/rw_readers.lua", "scripts/rw_release_readers.lua", "scripts/rw_read_release.lua";
    RW_READ_BATCH = "scripts/publish.lua", "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/rw_live_reader.lua", "scripts/rw_readers.lua", "scripts/rw_acquire_readers.lua", "scripts/rw_release_readers.lua", "scripts/rw_read_batch.lua";
    RW_WRITE_ACQUIRE = "scripts/publish.lua", "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/rw_live_reader.lua", "scripts/rw_write_acquire.lua";
    RW_WRITE_RELEASE = "scripts/publish.lua", "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/rw_live_reader.lua", "scripts/rw_readers.lua", "scripts/rw_write_release.lua";
    RW_RENEW = "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/master.lua", "scripts/rw_renew.lua";
    RW_FORCE_RELEASE = "scripts/publish.lua", "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/rw_live_reader.lua", "scripts/rw_readers.lua", "scripts/seen.lua", "scripts/rw_force_release.lua";
    RW_INSPECT = "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/rw_live_reader.lua", "scripts/rw_readers.lua", "scripts/rw_inspect.lua";
    SEMAPHORE_ACQUIRE = "scripts/number.lua", "scripts/semaphore_acquire.lua";
    SEMAPHORE_RELEASE = "scripts/publish.lua", "scripts/number.lua", "scripts/semaphore_release.lua";
    SEMAPHORE_STATE = "scripts/semaphore_state.lua";
    SEMAPHORE_ADJUST = "scripts/publish.lua", "scripts/number.lua", "scripts/semaphore_adjust.lua";
    LATCH_ADJUST = "scripts/publish.lua", "scripts/number.lua", "scripts/latch_adjust.lua";
    LATCH_SEEN = "scripts/number.lua", "scripts/master.lua", "scripts/latch_seen.lua";
    LATCH_DELETE = "scripts/publish.lua", "scripts/number.lua", "scripts/latch_delete.lua";
    NUMBER_COUNT = "scripts/number.lua", "scripts/number_count.lua";
    NUMBER_DELETE = "scripts/number.lua", "scripts/seen.lua", "scripts/number_delete.lua";
    LOOK = "scripts/number.lua", "scripts/look.lua";
    STILL_HELD = "scripts/master.lua", "scripts/still_held.lua";
    EXAMINE = "scripts/owner.lua", "scripts/rw_lock.lua", "scripts/rw_live_reader.lua", "scripts/rw_readers.lua", "scripts/examine.lua";
    NUMBER_INSPECT = "scripts/number.lua", "scripts/number_inspect.lua";
}

impl Script {
    fn new(source: &'static str) -> Self {
        // Relaxed: the numbers only have to differ.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            plain: Text::new(source.into()),
            sharded: OnceLock::new(),
            both: OnceLock::new(),
        }
    }

    /// The bit of this script in a set of them. There are fewer than 64; a test counts them.
    pub(super) fn bit(&self) -> u64 {
        1_u64.checked_shl(self.number).unwrap_or(0)
    }

    fn text(&self, publish: Publish) -> &Text {
        let source = &self.plain.source;
        let with = |call: &str| source.replace(PUBLISH_CALL, call);
        match publish {
            Publish::Plain => &self.plain,
            Publish::Sharded => self
                .sharded
                .get_or_init(|| Text::new(with(SHARDED_CALL).into())),
            Publish::Both => self.both.get_or_init(|| {
                let publishes = source.contains(PUBLISH_CALL);
                let function = if publishes { PUBLISH_BOTH } else { "" };
                Text::new((function.to_owned() + &with(BOTH_CALL)).into())
            }),
        }
    }

    pub(super) fn call(&self, form: Form, publish: Publish) -> Call {
        let text = self.text(publish);
        match form {
            Form::Digest => Call::new("EVALSHA", &text.digest),
            Form::Source => Call::new("EVAL", &text.source),
        }
    }
}

/// How the scripts begin the call of the command that publishes, and what replaces it where messages are sharded, or both.
const PUBLISH_CALL: &str = "redis.pcall('PUBLISH', ";
const SHARDED_CALL: &str = "redis.pcall('SPUBLISH', ";
const BOTH_CALL: &str = "publish_both(";
/// The function that does both.
const PUBLISH_BOTH: &str = include_str!("scripts/publish_both.lua");

impl Text {
    fn new(source: Cow<'static, str>) -> Self {
        let digest = redis::Script::new(&source).get_hash().to_owned();
        Self { source, digest }
    }
}

/// A call of a script, to which keys and then arguments are added.
pub(crate) struct Call(Cmd);

/// Adds the keys and arguments of a script to its call. Not a generic parameter: what sends a call would be compiled once for
/// each script.
pub(super) type Fill<'a> = &'a (dyn Fn(Call) -> Call + Sync);

/// Room for the usual arguments of a key: its name, its owner, and a lease or a channel.
const ARGS_OF_A_KEY: usize = 3;
const BYTES_OF_A_KEY: usize = 192;

/// A call has room for so many keys from the start. The room for one key would cost the allocator as much.
const FEW_KEYS: usize = 4;

impl Call {
    /// A call with room for a few keys.
    fn new(verb: &str, script: &str) -> Self {
        // Three, for the verb, the script and the number of keys.
        let args = 3 + FEW_KEYS * ARGS_OF_A_KEY;
        let bytes = verb.len() + script.len() + FEW_KEYS * BYTES_OF_A_KEY;
        let mut cmd = Cmd::with_capacity(args, bytes);
        cmd.arg(verb).arg(script);
        Self(cmd)
    }

    /// Adds a single key, the usual case.
    pub(super) fn key(mut self, key: &str) -> Self {
        self.0.arg(1).arg(key);
        self
    }

    pub(super) fn keys<'a>(self, keys: impl ExactSizeIterator<Item = &'a str>) -> Self {
        self.these_keys(keys.len(), keys)
    }

    /// Adds keys that somebody has counted.
    pub(super) fn these_keys<'a>(
        mut self,
        count: usize,
        keys: impl Iterator<Item = &'a str>,
    ) -> Self {
        if count > FEW_KEYS {
            // One more, for the number of keys.
            let args = count * ARGS_OF_A_KEY + 1;
            let sizes = repeat_n(BYTES_OF_A_KEY / ARGS_OF_A_KEY, args);
            self.0.reserve_space_for_args(sizes);
        }
        self.0.arg(count);
        for key in keys {
            self.0.arg(key);
        }
        self
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.0.arg(arg);
        self
    }

    /// Adds an owner. Its text is made on the stack: most commands allocate nothing else for an argument.
    pub(super) fn owner(self, owner: Owner) -> Self {
        let mut buffer = OWNER_BUFFER;
        self.arg(owner.encode(&mut buffer))
    }

    /// Adds the owners that were seen, as the scripts that free by force expect them: nothing if any owner may lose the key.
    pub(super) fn seen(self, seen: Option<&Seen>) -> Self {
        let Some(seen) = seen else { return self };
        let owners = seen.owners.iter();
        owners.fold(self.arg(seen.unnamed), |call, owner| call.arg(owner))
    }

    /// The same for a lock: its token first, or an empty text if none was seen.
    pub(super) fn seen_of_lock(self, seen: Option<&Seen>) -> Self {
        let Some(seen) = seen else { return self };
        let token = seen.number.map_or_else(String::new, |it| it.to_string());
        self.arg(token).seen(Some(seen))
    }

    pub(super) fn into_cmd(self) -> Cmd {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_has_a_bit() {
        assert!(SOURCES.len() <= 64, "{} scripts", SOURCES.len());
    }

    /// How many numbered inputs a header line declares: `-- KEYS  1 lock   2 channel`.
    fn declared(source: &str, what: &str) -> Option<usize> {
        let line = source
            .lines()
            .find(|line| line.starts_with(&format!("-- {what} ")))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.iter().any(|word| word.ends_with("..")) || line.contains("for each") {
            return None;
        }
        Some(
            words
                .iter()
                .filter(|word| word.parse::<usize>().is_ok())
                .count(),
        )
    }

    /// The highest index under which a body uses an input.
    fn used(source: &str, what: &str) -> usize {
        let body: String = source
            .lines()
            .filter(|line| !line.starts_with("--"))
            .collect();
        let before_index = format!("{what}[");
        let indices = body.split(&before_index).skip(1);
        let numbers = indices.filter_map(|rest| rest.split(']').next()?.parse().ok());
        numbers.max().unwrap_or(0)
    }

    #[test]
    fn every_message_is_published_in_the_way_that_is_asked_for() {
        let mut publishing = 0;
        for (name, source) in SOURCES {
            let script = Script::new(source);
            assert!(
                !source.replace(PUBLISH_CALL, "").contains("'PUBLISH'"),
                "{name} publishes in a way of its own"
            );
            let calls =
                |publish: Publish, call: &str| script.text(publish).source.matches(call).count();
            let plain = calls(Publish::Plain, PUBLISH_CALL);
            assert_eq!(calls(Publish::Plain, SHARDED_CALL), 0, "{name}");
            assert_eq!(calls(Publish::Sharded, SHARDED_CALL), plain, "{name}");
            assert_eq!(calls(Publish::Sharded, PUBLISH_CALL), 0, "{name}");
            for call in [PUBLISH_CALL, SHARDED_CALL] {
                assert_eq!(calls(Publish::Both, call), 0, "{name}");
            }
            // The function that does both, and its calls.
            let function = usize::from(plain > 0);
            assert_eq!(calls(Publish::Both, BOTH_CALL), function + plain, "{name}");
            publishing += plain;
        }
        assert!(publishing > 10);
    }

    #[test]
    fn scripts_that_publish_tell_with_each_answer_after_that_if_they_could_not() {
        for (name, source) in SOURCES {
            let body = source.rsplit("\n-- Reply ").next().unwrap_or_default();
            let publishes = |line: &str| {
                ["publish(", "tell(", "wake("]
                    .iter()
                    .any(|call| line.contains(call) && !line.contains("function "))
            };
            // Its answer has both.
            if *name == "PROBE" {
                continue;
            }
            let lines: Vec<&str> = body.lines().collect();
            let indent = |line: &str| line.len() - line.trim_start().len();
            for (at, line) in lines.iter().enumerate().filter(|(_, line)| publishes(line)) {
                assert!(source.contains(PUBLISH_CALL), "{name} has no `publish.lua`");
                // To the end of its block, and of the script if it is in none.
                let rest = lines[at..].iter();
                let block = rest.take_while(|other| indent(other) >= indent(line));
                for other in block.filter(|other| other.contains("return ")) {
                    assert!(other.contains("return told("), "{name}: {other}");
                }
                let last = lines.iter().rfind(|line| line.starts_with("return "));
                let leaves = last.is_none_or(|last| last.contains("told("));
                assert!(leaves || indent(line) > 0, "{name}: {last:?}");
            }
        }
    }

    #[test]
    fn scripts_have_the_bounds_that_the_client_keeps() {
        use crate::config::{MOST_ENTRIES, MOST_HOLDERS_TOLD};
        let of = |script: &Script| script.plain.source.clone();
        let entries = format!("local MOST_ENTRIES = {MOST_ENTRIES}\n");
        for script in [&*RW_READ_ACQUIRE, &RW_READ_RELEASE, &RW_RENEW, &RW_INSPECT] {
            assert!(of(script).contains(&entries));
        }
        let told = format!("local MOST_HOLDERS = {MOST_HOLDERS_TOLD}\n");
        for script in [&*RW_INSPECT, &PERMIT_INSPECT, &PERMIT_DELETE] {
            assert!(of(script).contains(&told));
        }
    }

    #[test]
    fn every_header_declares_what_the_body_uses() {
        for (name, source) in SOURCES {
            for what in ["KEYS", "ARGV"] {
                assert!(
                    source.contains(&format!("-- {what} ")),
                    "{name} does not declare {what}"
                );
                if let Some(declared) = declared(source, what) {
                    assert_eq!(declared, used(source, what), "{name}: {what}");
                }
            }
            assert!(
                source.contains("-- Reply "),
                "{name} does not declare its reply"
            );
            assert_eq!(
                source.contains("-- Undeclared "),
                source.contains(":rwlock_timeout:'"),
                "{name} does not say why it uses keys that it does not declare"
            );
            assert!(
                !source.contains("#!"),
                "{name} has a shebang, which is refused whole when memory is out"
            );
        }
    }
}
