//! Looks at many keys in the server, page by page.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{Names, examine as examine_one, unreadable};
use crate::backend::reports::{KeyReport, Primitive};
use crate::backend::{Fault, ScanFilter, ScanPosition, Sweep, glob};
use crate::client::Client;
use crate::config::{EXAMINED_AT_ONCE, MAX_SCAN_PAGE, SCAN_PAGE};
use crate::error::Error;
use crate::resource::key::Key;
use crate::session::Session;

/// A look at many keys in the server, page by page; made by [`Client::scan`].
///
/// # Examples
/// See [`Client::scan`].
#[must_use = "a scan does nothing until a page is asked for"]
pub struct Scan {
    session: Arc<Session>,
    /// As the user wrote it.
    pattern: String,
    /// With the client's prefix.
    full: String,
    page_size: u32,
    /// The sweeps that are still to be done, the next one last.
    sweeps: Vec<Sweep>,
    /// Where the next page of the sweep begins.
    position: ScanPosition,
    looked_at: u64,
    names: Names,
}

impl Client {
    /// Looks at all keys that match a pattern, page by page: locks, semaphores and latches, of this crate and of Redisson.
    ///
    /// In the pattern `*` stands for any text, `?` for one byte, `[ab]` and `[a-c]` for one of these bytes, `[^a]` for any
    /// other one, and `\` takes the next character as it is. `"order:*"` is all keys that begin with `order:`, and `"*"` is
    /// all keys. Only keys with the client's [prefix](crate::Builder::key_prefix) are found, and the pattern does not contain
    /// the prefix.
    ///
    /// The client reads the keys with `SCAN`, first all locks and then all numbers. In a cluster it reads one master after the
    /// other. It then inspects each key of a page, as [`inspect`](Client::inspect) does. A page is read when the caller asks for
    /// it, so the caller decides how much work the server has. A key that exists during the whole scan is found, possibly on
    /// several pages. A key that is made or removed meanwhile, or whose slot moves between the nodes of a cluster, may be missed.
    ///
    /// Matching keys of other programs are left out, unless their value is a number: a semaphore is a number as well. A key that
    /// cannot be read, because what is stored under it or for it is broken or its name is not UTF-8, is reported as
    /// [unreadable](Primitive::Unreadable), and the scan continues.
    ///
    /// # Errors
    /// None yet: [`Scan::next_page`] returns them.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.multi_lock(["order:42", "order:43", "stock:7"]).acquire().await?;
    ///
    /// let (mut scan, mut found) = (client.scan("order:*"), Vec::new());
    /// while let Some(page) = scan.next_page().await? {
    ///     for report in page {
    ///         println!("{}: {}, {} holders", report.key, report.primitive, report.holder_total);
    ///         found.push(report.key);
    ///     }
    /// }
    /// assert_eq!(found, ["order:42", "order:43"]);
    /// # Ok(()) }
    /// ```
    pub fn scan(&self, pattern: impl Into<String>) -> Scan {
        let session = self.session();
        let pattern = pattern.into();
        Scan {
            full: escaped(&session.config.key_prefix) + &pattern,
            session,
            pattern,
            page_size: SCAN_PAGE,
            // Locks are there first, however many numbers other programs have.
            sweeps: vec![Sweep::Numbers, Sweep::Locks],
            position: ScanPosition::default(),
            looked_at: 0,
            names: Names::default(),
        }
    }
}

impl Scan {
    /// Sets how many keys of the server a page goes through, whether they match or not: 1 to 10,000, and 200 by default.
    ///
    /// The number is approximate: the server may return a few more. Larger pages need fewer round trips, and each takes the
    /// server longer.
    ///
    /// # Errors
    /// A value out of range is reported as [`Error::InvalidConfig`] by [`next_page`](Scan::next_page).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.multi_lock(["order:42", "order:43"]).acquire().await?;
    /// let mut scan = client.scan("*").page_size(1);
    /// assert_eq!(scan.next_page().await?.map(|page| page.len()), Some(1));
    /// # Ok(()) }
    /// ```
    pub fn page_size(mut self, keys: u32) -> Self {
        self.page_size = keys;
        self
    }

    /// Leaves out the numbers that nothing shows to be a semaphore or a latch, which would be reported as
    /// [`Primitive::Number`]: most of them are counters of other programs.
    ///
    /// Taken permits show that a number is a semaphore, and so does a client that listens to its messages. A semaphore with no
    /// taken permit and no waiter is therefore left out, too. If other programs have many numbers, such a scan is much cheaper:
    /// the server executes two short commands for each number, and no script.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// client.semaphore("used").try_set_permits(3).await?;
    /// client.semaphore("unused").try_set_permits(3).await?;
    /// let _permit = client.semaphore("used").acquire().await?;
    ///
    /// let (mut scan, mut found) = (client.scan("*").skip_numbers(), Vec::new());
    /// while let Some(page) = scan.next_page().await? {
    ///     found.extend(page.into_iter().map(|report| report.key));
    /// }
    /// assert_eq!(found, ["used"]);
    /// # Ok(()) }
    /// ```
    pub fn skip_numbers(mut self) -> Self {
        let in_use = |sweep| match sweep {
            Sweep::Numbers => Sweep::NumbersInUse,
            sweep => sweep,
        };
        self.sweeps = self.sweeps.into_iter().map(in_use).collect();
        self
    }

    /// Returns how many keys the scan has looked at so far: those that match its pattern and have the type of a lock, a semaphore
    /// or a latch. A program can use it to limit its scan.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
    /// let client = distlock::Client::in_memory();
    /// let _guard = client.multi_lock(["order:42", "order:43"]).acquire().await?;
    /// let mut scan = client.scan("*");
    /// while scan.looked_at() < 100_000
    ///     && let Some(_page) = scan.next_page().await?
    /// {}
    /// assert_eq!(scan.looked_at(), 2);
    /// # Ok(()) }
    /// ```
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Returns whether the pattern of the scan matches a key, which is given without the client's prefix. The method asks no
    /// server.
    ///
    /// # Examples
    /// ```
    /// let client = distlock::Client::builder().key_prefix("shop:").in_memory(&distlock::MemoryServer::new())?;
    /// let orders = client.scan("order:*");
    /// assert!(orders.matches("order:42"));
    /// assert!(!orders.matches("stock:7"));
    /// # Ok::<(), distlock::Error>(())
    /// ```
    pub fn matches(&self, key: &str) -> bool {
        glob::matches(self.pattern.as_bytes(), key.as_bytes())
    }

    /// Reads the next page; `None` after the last one.
    ///
    /// A page may be empty although others follow, because few keys match. The keys of a page are in alphabetical order, and
    /// the pages with locks come before those with semaphores and latches.
    ///
    /// # Errors
    /// * [`Error::InvalidConfig`]: the [page size](Scan::page_size) is out of range.
    /// * [`Error::Denied`]: the user lacks a right, which the error names if the server does. Without the rights to count
    ///   listeners and to name clients there is no error, and each report says
    ///   [what is missing](KeyReport::missing_rights).
    /// * [`Error::Unavailable`]: the server did not answer. The next call reads the same page again. If another server has
    ///   become the master meanwhile, its keys are read from the beginning, so that keys may be found twice.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call reads the same page again.
    ///
    /// # Examples
    /// See [`Client::scan`].
    pub async fn next_page(&mut self) -> Result<Option<Vec<KeyReport>>, Error> {
        if !(1..=MAX_SCAN_PAGE).contains(&self.page_size) {
            let expected = format!("1 to {MAX_SCAN_PAGE}");
            return Err(Error::invalid_config("page_size", self.page_size, expected));
        }
        let Some(&sweep) = self.sweeps.last() else {
            return Ok(None);
        };
        let session = &self.session;
        session.tend_tasks();
        let prefix = &session.config.key_prefix;
        let since = session.now();
        // A fault that concerns no single key is reported with the pattern.
        let asked = Key::new("", &self.pattern).or_else(|_| Key::new("", "*"))?;
        let failed = |fault: Fault| fault.into_error(&asked, session.now().since(since));
        let backend = &session.backend;
        let wanted = ScanFilter {
            pattern: &self.full,
            sweep,
        };
        let page = backend.scan(&self.position, wanted, self.page_size);
        let page = page.await.map_err(failed)?;
        let keys = keys_of(&page.names, prefix).collect();
        let examined = examine(session, keys).await.map_err(failed)?;
        // The keys of a page are on one server.
        if let Some((_, key)) = examined.first() {
            let reports = examined.iter().map(|(report, _)| report);
            self.names
                .learn(session, key, reports)
                .await
                .map_err(failed)?;
        }
        let mut reports: Vec<_> = examined.into_iter().map(|(report, _)| report).collect();
        if sweep == Sweep::NumbersInUse {
            reports.retain(|report| report.primitive != Primitive::Number);
        }
        reports
            .iter_mut()
            .for_each(|report| self.names.resolve(report));
        let no_text = keys_of(&page.no_text, prefix);
        reports.extend(no_text.map(|key| unreadable(&key, NO_TEXT)));
        reports.sort_by(|one, other| one.key.cmp(&other.key));
        self.looked_at += page.looked_at;
        self.position = page.next.unwrap_or_else(|| {
            self.sweeps.pop();
            ScanPosition::default()
        });
        Ok(Some(reports))
    }
}

/// Why a key cannot be read whose name is not UTF-8.
const NO_TEXT: &str = "its name is not UTF-8, so no client of this crate can use it";

/// The keys with these names. A longer key belongs to another program.
fn keys_of<'a>(names: &'a [String], prefix: &'a str) -> impl Iterator<Item = Key> + 'a {
    let keys = names
        .iter()
        .filter_map(move |name| name.strip_prefix(prefix));
    keys.filter_map(move |key| Key::new(prefix, key).ok())
}

/// Reports on each of these keys that is still there and has a primitive.
async fn examine(session: &Session, keys: Vec<Key>) -> Result<Vec<(KeyReport, Key)>, Fault> {
    let examine = async |key: Key| {
        let report = match examine_one(session, &key).await {
            Ok(report) => report,
            // The server has answered, so only this key cannot be read.
            Err(fault @ (Fault::WrongType(_) | Fault::Protocol(_))) => unreadable(&key, &fault),
            Err(fault) => return Err(fault),
        };
        Ok((report, key))
    };
    let examined = stream::iter(keys).map(examine).buffered(EXAMINED_AT_ONCE);
    let mut examined: Vec<(KeyReport, Key)> = examined.try_collect().await?;
    examined.retain(|(report, _)| {
        !matches!(report.primitive, Primitive::Nothing | Primitive::OtherData)
    });
    Ok(examined)
}

// A page that ends in a panic is read again: the position moves with a whole page.
impl UnwindSafe for Scan {}
impl RefUnwindSafe for Scan {}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("pattern", &self.pattern)
            .field("is_over", &self.sweeps.is_empty())
            .finish_non_exhaustive()
    }
}

/// Escapes a text, so that as a pattern it matches only itself.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
