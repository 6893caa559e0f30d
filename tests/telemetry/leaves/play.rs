//! One play: clients of a backend, others who want the same key, a future that is cut, and what has to be true afterwards.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::test_util::{Sizes, sizes, stored};
use distlock::{Client, Error, Guard, LockSource, MemoryServer, Quorum};
use distlock_tests::any_lock::SERVERS;
use distlock_tests::{AnyLock, LockKind};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::calls;
use crate::cuts::Cut;
use crate::rows::{After, Row, World};

/// Less than the watchdog's lease, so that what a lease has ended is not taken for what the library has.
pub(crate) const SOON: Duration = Duration::from_secs(12);

/// How long anybody waits for the key: longer than a future is left alone.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// How long the server remembers a change whose answer the client has not confirmed.
const MARKS: Duration = Duration::from_secs(70);

/// How long the holder of a key keeps it.
const HELD_FOR: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Redis,
}

/// What the plays of a test share.
pub(crate) struct Ground {
    /// Of Redis.
    url: Option<String>,
}

impl Ground {
    pub(crate) fn memory() -> Self {
        Self { url: None }
    }

    pub(crate) fn redis(url: &str) -> Self {
        let url = Some(url.to_owned());
        Self { url }
    }

    pub(crate) fn backend(&self) -> Backend {
        match self.url {
            None => Backend::Memory,
            Some(_) => Backend::Redis,
        }
    }
}

/// The clients of a play and its key.
pub(crate) struct Play {
    pub(crate) key: String,
    pub(crate) kind: LockKind,
    pub(crate) url: Option<String>,
    /// Of memory, one for each client of a program.
    pub(crate) servers: Vec<MemoryServer>,
    /// Those whose futures are cut: several for a Redlock.
    program: Vec<Client>,
    /// Another program's.
    others: Vec<Client>,
    /// Who wants the key as well, and whether each got it.
    rivals: RefCell<Vec<JoinHandle<Result<(), Error>>>>,
}

/// Plays once, in a runtime of its own, where nothing of another play is left. Returns whether there was anything to cut.
pub(crate) fn in_a_runtime(ground: &Ground, row: &Row, cut: &Cut) -> bool {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(ground.backend() == Backend::Memory)
        .build()
        .unwrap();
    runtime.block_on(play(ground, row, cut))
}

async fn play(ground: &Ground, row: &Row, cut: &Cut) -> bool {
    let what = format!("{:?}: {}, {cut:?}", ground.backend(), row.name);
    calls::unplanned();
    let play = Rc::new(Play::new(ground, row).await);
    play.block(row.world).await;
    let subject = (row.setup)(Rc::clone(&play)).await;
    let plan = cut.plan();
    let mut was_cut = cut.apply(subject, &what).await;
    if let Some(plan) = plan {
        // What goes on in the background may call foreign code, too.
        let start = Instant::now();
        while !plan.has_come() && !play.is_settled() && start.elapsed() < SOON {
            sleep(Duration::from_millis(1)).await;
        }
        was_cut = plan.has_come();
    }
    play.carry_out().await;
    let failed = play.check(row.after, Instant::now()).await;
    assert!(failed.is_ok(), "{what}: {}", failed.unwrap_err());
    drop(play);
    let all_ended = async || Handle::current().metrics().num_alive_tasks() == 0;
    assert!(within(SOON, all_ended).await, "{what}: a task is left");
    assert_eq!(calls::unplanned(), 0, "{what}: a panic of nobody's plan");
    was_cut
}

/// Looks until it is true.
async fn within(time: Duration, mut fact: impl AsyncFnMut() -> bool) -> bool {
    let start = Instant::now();
    while !fact().await {
        if start.elapsed() > time {
            return false;
        }
        sleep(Duration::from_millis(1)).await;
    }
    true
}

async fn connect(url: Option<&str>, servers: &[MemoryServer], at: usize) -> Client {
    let builder = Client::builder().metrics_key_class(|_| {
        calls::call("the class of a key");
        "order"
    });
    match url {
        None => builder.in_memory(&servers[at]).unwrap(),
        Some(url) => {
            let builder = builder.key_prefix(format!("{at}:"));
            builder.connect(url).await.unwrap()
        }
    }
}

impl Play {
    async fn new(ground: &Ground, row: &Row) -> Self {
        static PLAYS: AtomicU64 = AtomicU64::new(0);
        let number = PLAYS.fetch_add(1, Ordering::Relaxed);
        let size = match row.kind {
            LockKind::Red => SERVERS,
            _ => 1,
        };
        let servers: Vec<_> = (0..size).map(|_| MemoryServer::new()).collect();
        let (mut program, mut others) = (Vec::new(), Vec::new());
        for at in 0..size {
            program.push(connect(ground.url.as_deref(), &servers, at).await);
            others.push(connect(ground.url.as_deref(), &servers, at).await);
        }
        let play = Self {
            key: format!("leaves:{number}:"),
            kind: row.kind,
            url: ground.url.clone(),
            servers,
            program,
            others,
            rivals: RefCell::default(),
        };
        if row.after == After::Free {
            play.set_permits().await;
        }
        play
    }

    async fn set_permits(&self) {
        let (client, permits) = (self.other(), self.kind.capacity());
        let set = match self.kind {
            LockKind::Semaphore => client.semaphore(&self.key).try_set_permits(permits).await,
            LockKind::Permit => {
                let semaphore = client.expirable_semaphore(&self.key);
                semaphore.try_set_permits(permits).await
            }
            _ => return,
        };
        assert!(set.unwrap());
    }

    pub(crate) fn client(&self) -> &Client {
        &self.program[0]
    }

    pub(crate) fn other(&self) -> &Client {
        &self.others[0]
    }

    /// The row's lock.
    pub(crate) fn lock(&self) -> AnyLock {
        self.kind.lock_on(&self.program, &self.key)
    }

    /// Where a layer or an annotated function finds the row's lock.
    pub(crate) fn source(&self) -> LockSource {
        match self.kind {
            LockKind::Red => Quorum::new(self.program.iter().cloned()).into(),
            _ => self.client().into(),
        }
    }

    /// The keys of the row's lock.
    pub(crate) fn keys(&self) -> Vec<String> {
        let key = self.key.clone();
        match self.kind {
            LockKind::Multi => vec![format!("{key}:other"), key],
            _ => vec![key],
        }
    }

    /// Holds the row's lock until the future is made.
    pub(crate) async fn held(&self) -> Guard {
        self.lock().acquire(Some(PATIENCE), None).await.unwrap()
    }

    /// What keeps all others out, of this program or of the other one.
    fn excluding(&self, program: &[Client]) -> (AnyLock, u32) {
        match self.kind {
            LockKind::Read => (LockKind::Write.lock_on(program, &self.key), 1),
            kind => (kind.lock_on(program, &self.key), kind.capacity()),
        }
    }

    /// Somebody holds the key for a while, and others want it after that.
    async fn block(&self, world: World) {
        let program = match world {
            World::Free => return,
            World::BehindOwn => &self.program,
            World::BehindOther => &self.others,
        };
        let (lock, times) = self.excluding(program);
        let mut guards = Vec::new();
        for _ in 0..times {
            guards.push(lock.acquire(Some(PATIENCE), None).await.unwrap());
        }
        let ends = async move {
            sleep(HELD_FOR).await;
            for guard in guards {
                guard.release().await?;
            }
            Ok(())
        };
        self.rivals.borrow_mut().push(tokio::spawn(ends));
        self.rivals(HELD_FOR / 2);
    }

    /// From then on, one of each program wants the key.
    pub(crate) fn rivals(&self, after: Duration) {
        for program in [&self.program, &self.others] {
            let lock = self.kind.lock_on(program, &self.key);
            let rival = async move {
                sleep(after).await;
                drop(lock.acquire(Some(PATIENCE), None).await?);
                Ok(())
            };
            self.rivals.borrow_mut().push(tokio::spawn(rival));
        }
    }

    /// Waits until a rival of this program stands in line.
    pub(crate) async fn with_rivals(&self) {
        self.rivals(Duration::ZERO);
        let in_line = async || sizes(self.client()).waiter_slots > 0;
        assert!(within(SOON, in_line).await, "no rival in line");
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        self.program.iter().chain(&self.others)
    }

    /// Waits until the server has carried out what the program has sent. A dropped future has no longer an effect on its client, but
    /// its last request may still be on its way, and would free a hold that another program acquires meanwhile.
    async fn carry_out(&self) {
        for client in &self.program {
            // A client that the row has closed has nothing on its way.
            let _answer = client.ping().await;
        }
    }

    /// Whether no client holds, waits for, listens to or owes anything.
    fn is_settled(&self) -> bool {
        self.clients()
            .all(|client| sizes(client) == Sizes::default())
    }

    /// What each client has, where somebody waits in vain.
    fn state(&self) -> String {
        let sizes: Vec<Sizes> = self.clients().map(sizes).collect();
        format!("a rival waits: {sizes:?}, {:?}", self.client().snapshot())
    }

    /// What is not as it should be.
    async fn check(&self, after: After, start: Instant) -> Result<(), String> {
        for rival in self.rivals.take() {
            let got = timeout(SOON, rival).await.map_err(|_| self.state())?;
            match got {
                // It met the panic itself.
                Err(panicked) if panicked.is_panic() => {}
                Ok(Ok(())) => {}
                got => return Err(format!("a rival got {got:?}")),
            }
        }
        let settled = within(SOON, async || self.is_settled()).await;
        if !settled {
            let left: Vec<Sizes> = self.clients().map(sizes).collect();
            return Err(format!("left {left:?}"));
        }
        if after == After::Free {
            self.is_free().await.map_err(|error| error.to_string())?;
        }
        self.delete_numbers()
            .await
            .map_err(|error| error.to_string())?;
        let settled = within(SOON, async || self.is_settled()).await;
        if !settled || start.elapsed() > 2 * SOON {
            return Err(format!("not settled, after {:?}", start.elapsed()));
        }
        let start = Instant::now();
        loop {
            let left = self.data().await;
            if left.is_empty() {
                return Ok(());
            }
            if start.elapsed() > MARKS {
                return Err(format!("data {left:?}"));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// All of the lock can be acquired by the other program.
    async fn is_free(&self) -> Result<(), Error> {
        let (lock, times) = self.excluding(&self.others);
        let mut guards = Vec::new();
        for _ in 0..times {
            guards.push(lock.acquire(Some(PATIENCE), None).await?);
        }
        for guard in guards {
            guard.release().await?;
        }
        Ok(())
    }

    async fn delete_numbers(&self) -> Result<(), Error> {
        match self.kind {
            LockKind::Semaphore => drop(self.other().semaphore(&self.key).delete().await?),
            LockKind::Permit => drop(self.other().expirable_semaphore(&self.key).delete().await?),
            LockKind::Latch => drop(self.other().count_down_latch(&self.key).delete().await?),
            _ => {}
        }
        Ok(())
    }

    /// What the server keeps of this key.
    async fn data(&self) -> Vec<String> {
        let Some(url) = &self.url else {
            let stored = self.servers.iter().map(stored);
            let left = stored.filter(|stored| *stored != (0, 0));
            return left.map(|left| format!("{left:?}")).collect();
        };
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let pattern = format!("*{}*", self.key);
        let keys = redis::cmd("KEYS").arg(&pattern).query(&mut connection);
        let mut names: Vec<String> = keys.unwrap();
        // The last token stays on purpose, and that a latch was opened is remembered for some seconds. So are requests whose answer
        // has not been confirmed.
        names.retain(|name| {
            let is_mark = name.ends_with(":request") || name.ends_with(":ended");
            let stays = redis::cmd("PTTL").arg(name).query::<i64>(&mut connection);
            let is_forgotten_later = is_mark && stays.unwrap() != -1;
            let is_opened = name.ends_with(":distlock_opened");
            !(name.starts_with("redisson_lock_token:") || is_opened || is_forgotten_later)
        });
        let channels = redis::cmd("PUBSUB")
            .arg("CHANNELS")
            .arg(&pattern)
            .query(&mut connection);
        names.append(&mut channels.unwrap());
        names
    }
}
