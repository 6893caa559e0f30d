//! Scopes: the frames around running code, by which a nested acquire finds the hold that encloses it.
//!
//! A frame records that code runs inside a guard's critical section. Frames are in a thread-local only while the future of a
//! scope is polled or dropped. They follow the future from thread to thread and never leak into another task.
//!
//! # Invariants
//! 1. Frames are taken at the first poll and never where a future is made: a future that is spawned from a scope does not
//!    inherit it.
//! 2. A frame is closed when its scope completes, is lost or is dropped. A closed frame is passed over.
//! 3. A body is polled and dropped inside its frames, so that code in a `Drop` sees them too.

pub(crate) mod current;

use std::cell::RefCell;
use std::fmt;
use std::iter;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use uuid::Uuid;

use crate::error::Error;
use crate::foreign;
use crate::hold::{Flag, HoldRef, HoldView};
use crate::local::Around;
use crate::mutex::Mutex;
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Nesting;
use crate::resource::owner::Owner;
use crate::sync::atomic::{AtomicBool, Ordering};

/// One scope around running code, with the frames of all keys of its guard. There is one value for all of them, since a
/// guard may have thousands of keys.
#[derive(Debug)]
pub(crate) struct EnclosingScope {
    /// Closed parents are dropped. Otherwise a chain of tasks, each started from inside the scope of the one before,
    /// would keep all these scopes in memory.
    parent: Mutex<Frames>,
    view: HoldView,
    /// Written under the mutex of each hold.
    closed: AtomicBool,
    /// Wakes the waiters of the gates when the frames close.
    closing: Flag,
}

/// The frame of one key.
#[derive(Debug)]
pub(crate) struct Frame {
    scope: Arc<EnclosingScope>,
    hold_ref: Arc<HoldRef>,
}

/// The scopes around a piece of code, innermost first.
pub(crate) type Frames = Option<Arc<EnclosingScope>>;

crate::sync::thread_local! {
    static FRAMES: RefCell<Frames> = const { RefCell::new(None) };
}

/// The view of the scope around the running code that has the key, and the key's hold in it. Of several such scopes it is
/// the innermost that is held, or the innermost if none is.
pub(crate) fn view_of(key: &str) -> Option<(HoldView, Arc<HoldRef>)> {
    let frames = frames();
    let on_key = || outwards(&frames).filter_map(|scope| scope.on_key(key));
    let held = on_key().find(|(view, _)| view.is_held());
    held.or_else(|| on_key().next())
}

/// The frames around the code that runs now.
pub(crate) fn frames() -> Frames {
    FRAMES
        .try_with(|frames| frames.borrow().clone())
        .ok()
        .flatten()
}

/// Restores the frames that were there before, also on unwinding.
struct Restore(Frames);

impl Drop for Restore {
    fn drop(&mut self) {
        swap_in(&mut self.0);
    }
}

/// Swaps these frames with the thread's. Does nothing on a thread that is ending: this may be called from a drop, which
/// must not panic.
fn swap_in(frames: &mut Frames) {
    let _ending = FRAMES.try_with(|current| std::mem::swap(&mut *current.borrow_mut(), frames));
}

/// Runs a function inside these frames.
pub(crate) fn within<R>(frames: &Frames, run: impl FnOnce() -> R) -> R {
    let mut frames = frames.clone();
    swap_in(&mut frames);
    let _restore = Restore(frames);
    foreign::call_user(run)
}

/// The open scopes, innermost first.
fn outwards(frames: &Frames) -> impl Iterator<Item = Arc<EnclosingScope>> + use<> {
    let mut innermost = frames.clone();
    pass_closed(&mut innermost);
    iter::successors(innermost, |scope| scope.parent())
}

/// Replaces closed scopes by their innermost open parent.
fn pass_closed(frames: &mut Frames) {
    while let Some(scope) = frames
        && scope.is_closed()
    {
        let parent = scope.parent.lock().clone();
        *frames = parent;
    }
}

fn nesting(member: &HoldRef, client: Uuid, resource: &Resource) -> Nesting {
    let hold = member.hold();
    if member.client() == client && hold.resource.key == resource.key {
        resource.kind.within(hold.resource.kind)
    } else {
        Nesting::Apart
    }
}

impl EnclosingScope {
    fn new(mut parent: Frames, view: HoldView) -> Self {
        pass_closed(&mut parent);
        // This drops the closed parents of the next link as well. Closed scopes further out were dropped when that link
        // began, or are dropped when it ends.
        if let Some(around) = &parent {
            around.parent();
        }
        for member in view.members().iter() {
            member.hold().note_scope();
        }
        Self {
            parent: Mutex::new(parent),
            view,
            closed: AtomicBool::new(false),
            closing: Flag::default(),
        }
    }

    fn find(self: &Arc<Self>, client: Uuid, resource: &Resource) -> Option<(Frame, Nesting)> {
        let members = self.view.members();
        members.iter().find_map(|member| {
            let nesting = nesting(member, client, resource);
            if nesting == Nesting::Apart || !self.is_open_for(member) {
                return None;
            }
            let scope = Arc::clone(self);
            let hold_ref = Arc::clone(member);
            Some((Frame { scope, hold_ref }, nesting))
        })
    }

    /// The view, and the first hold of this key as the user wrote it, of any client.
    fn on_key(&self, key: &str) -> Option<(HoldView, Arc<HoldRef>)> {
        let is_on = |member: &Arc<HoldRef>| member.hold().resource.key.text() == key;
        let members = self.view.members();
        let mut members = members.iter();
        let member = members.find(|member| is_on(member) && self.is_open_for(member))?;
        Some((self.view.clone(), Arc::clone(member)))
    }

    /// The innermost open scope around this one.
    fn parent(&self) -> Frames {
        let mut parent = self.parent.lock();
        pass_closed(&mut parent);
        parent.clone()
    }

    fn is_closed(&self) -> bool {
        // Acquire: pairs with the store in `Hold::close`. Where a nesting depends on it, the hold's mutex orders both.
        self.closed.load(Ordering::Acquire)
    }

    fn is_open_for(&self, member: &HoldRef) -> bool {
        !self.is_closed() && !member.has_ended()
    }

    fn close(&self) {
        for member in self.view.members().iter() {
            member.hold().close(&self.closed);
        }
        self.closing.set();
    }
}

impl Around for EnclosingScope {
    fn holds(&self, client: Uuid) -> Vec<(Owner, Key)> {
        let own = (!self.is_closed()).then(|| self.view.clone());
        let parents = outwards(&self.parent());
        let views = own
            .into_iter()
            .chain(parents.map(|scope| scope.view.clone()));
        let holds = |view: HoldView| -> Vec<_> {
            let members = view.members();
            let of_client = members.iter().filter(|member| member.client() == client);
            let hold =
                |member: &Arc<HoldRef>| (member.hold().owner, member.hold().resource.key.clone());
            of_client.map(hold).collect()
        };
        views.flat_map(holds).collect()
    }
}

impl Frame {
    /// The innermost open frame in `frames` whose hold affects an acquisition of the resource, and how it does.
    pub(crate) fn find(
        frames: &Frames,
        client: Uuid,
        resource: &Resource,
    ) -> Option<(Self, Nesting)> {
        outwards(frames).find_map(|scope| scope.find(client, resource))
    }

    pub(crate) fn hold_ref(&self) -> &Arc<HoldRef> {
        &self.hold_ref
    }

    /// The view of the scope's guard.
    pub(crate) fn view(&self) -> &HoldView {
        &self.scope.view
    }

    pub(crate) fn closed(&self) -> &AtomicBool {
        &self.scope.closed
    }

    /// Completes when the frame closes.
    pub(crate) async fn closing(&self) {
        self.scope.closing.wait().await;
    }
}

/// The critical section of a guard as an owned value, for authors of middleware.
///
/// [`Guard::scope`](crate::Guard::scope) borrows the guard, so a struct cannot store both. A section does not borrow: store it
/// beside the guard, and enter it around every piece of code that belongs to the critical section, such as a call, a future
/// or a body. Code inside the section re-enters the guard's hold. The section ends when it is dropped, and the hold ends with
/// its guard.
///
/// Drop the section before the guard, so that no acquisition re-enters a hold that is about to end.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::Error> {
/// use std::future::poll_fn;
/// use std::pin::pin;
///
/// let client = distlock::Client::in_memory();
/// let lock = client.lock("order:42");
/// let guard = lock.acquire().await?;
/// let mut section = guard.section();
/// let mut body = pin!(async { lock.try_acquire().await.map(|again| again.is_some()) });
/// let entered = poll_fn(|cx| section.poll_in(cx, |cx| body.as_mut().poll(cx))).await??;
/// assert!(entered && section.is_held());
/// guard.release().await?;
/// section.lost().await;
/// assert!(!section.is_held());
/// # Ok(()) }
/// ```
pub struct Section {
    view: HoldView,
    /// The frames of this section. They are made when the section is first entered, inside the frames that are active
    /// then.
    frames: Frames,
    /// Wakes the task when the guard no longer holds the key. Made when a poll is pending for the first time.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

// The frames are restored when code inside the section panics, and everything else is only read.
impl UnwindSafe for Section {}
impl RefUnwindSafe for Section {}

impl Section {
    pub(crate) fn new(view: HoldView) -> Self {
        Self {
            view,
            frames: None,
            over: None,
        }
    }

    fn frames(&mut self) -> &Frames {
        if self.frames.is_none() {
            let own = EnclosingScope::new(frames(), self.view.clone());
            self.frames = Some(Arc::new(own));
        }
        &self.frames
    }

    /// Returns whether the section's guard holds the key, wherever that guard is by now. See
    /// [`Guard::is_held`](crate::Guard::is_held).
    ///
    /// # Examples
    /// See [`Section`].
    pub fn is_held(&self) -> bool {
        self.view.is_held()
    }

    /// Returns how long the section's guard still holds the key, unless its lease is renewed; zero once it does not. See
    /// [`Guard::remaining`](crate::Guard::remaining).
    ///
    /// # Examples
    /// See [`Guard::remaining`](crate::Guard::remaining).
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// Returns a future that completes when the hold is lost or the section's guard ends, wherever that guard is by now. See
    /// [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    /// See [`Section`].
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.view.clone().over()
    }

    /// Runs a function inside the section: its acquisitions of the key re-enter the hold. Does not check whether the
    /// hold is lost.
    ///
    /// # Examples
    /// See [`Section`].
    pub fn enter<R>(&mut self, run: impl FnOnce() -> R) -> R {
        within(self.frames(), run)
    }

    /// Polls a future inside the section, unless the hold is lost.
    ///
    /// The lease is compared with the clock before `poll` runs, and the task is woken when the hold is lost. A released
    /// guard is not a loss: `poll` runs then, and its acquisitions are ordinary ones.
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold is lost. The caller then has to drop the future that it polled, inside
    /// [`enter`](Section::enter).
    ///
    /// # Examples
    /// See [`Section`].
    pub fn poll_in<R>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<Result<R, Error>> {
        if let Some(error) = self.loss() {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(output) = within(self.frames(), || poll(cx)) {
            return Poll::Ready(Ok(output));
        }
        // A guard that has ended cannot be lost any more. Only the body wakes the task.
        loop {
            if self.view.has_ended() {
                return Poll::Pending;
            }
            let view = &self.view;
            let over = self
                .over
                .get_or_insert_with(|| Box::pin(view.clone().over()));
            ready!(over.as_mut().poll(cx));
            self.over = None;
            if let Some(error) = self.loss() {
                return Poll::Ready(Err(error));
            }
            // A renewal was confirmed after the end of the lease was noticed: the task has to be woken at the new end.
        }
    }

    fn loss(&self) -> Option<Error> {
        if self.view.has_ended() {
            None
        } else {
            self.view.loss()
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        if let Some(own) = &self.frames {
            own.close();
        }
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A future that runs inside a critical section, made by [`Guard::scope`](crate::Guard::scope).
    ///
    /// # Cancel safety
    /// The same as [`Guard::scope`](crate::Guard::scope).
    ///
    /// # Examples
    /// See [`Guard::scope`](crate::Guard::scope).
    #[must_use = "futures do nothing unless awaited"]
    pub struct Scope<'g, F> {
        section: Section,
        #[pin]
        body: Option<F>,
        guard: PhantomData<&'g ()>,
    }

    impl<F> PinnedDrop for Scope<'_, F> {
        fn drop(this: Pin<&mut Self>) {
            // The body is dropped first, and inside its section, so that code in its `Drop` still sees the scope.
            let mut this = this.project();
            this.section.enter(|| this.body.set(None));
        }
    }
}

impl<F> Scope<'_, F> {
    pub(crate) fn new(section: Section, body: F) -> Self {
        Self {
            section,
            body: Some(body),
            guard: PhantomData,
        }
    }
}

impl<F: Future> Future for Scope<'_, F> {
    type Output = Result<F::Output, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let output = ready!(poll_body(this.section, this.body.as_mut(), cx));
        Poll::Ready(output)
    }
}

/// Polls a body inside its section, and drops it there when it is done or the hold is lost.
pub(crate) fn poll_body<F: Future>(
    section: &mut Section,
    mut body: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Error>> {
    let Some(unfinished) = body.as_mut().as_pin_mut() else {
        polled_after_completion();
    };
    let output = ready!(section.poll_in(cx, |cx| unfinished.poll(cx)));
    section.enter(|| body.set(None));
    Poll::Ready(output)
}

/// Tells the caller of a finished future about the mistake. Without this panic the caller's task would hang. The futures of
/// `std` and of tokio panic as well.
#[track_caller]
pub(crate) fn polled_after_completion() -> ! {
    panic!("a future of distlock was polled after its completion")
}

impl<F> fmt::Debug for Scope<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("section", &self.section)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    #[tokio::test]
    async fn section_on_many_keys_is_one_link_of_the_chain_and_shares_its_guards_view() {
        let client = Client::in_memory();
        let keys = ["a", "b", "c"];
        let guard = client.multi_lock(keys).acquire().await.unwrap();
        let mut outer = guard.section();
        let mut inner = guard.section();
        let around = outer.enter(|| inner.enter(frames));
        assert_eq!(outwards(&around).count(), 2);
        let innermost = around.as_ref().unwrap().view.members();
        assert_eq!(innermost.len(), keys.len());
        assert!(std::ptr::eq(&*innermost, &*inner.view.members()));
    }

    /// How many scopes are kept for a piece of code, open or closed.
    fn kept(frames: &Frames) -> usize {
        let parent = |scope: &Arc<EnclosingScope>| scope.parent.lock().clone();
        iter::successors(frames.clone(), parent).count()
    }

    #[tokio::test]
    async fn closed_scopes_are_let_go_however_long_the_chain() {
        let client = Client::in_memory();
        let guard = client.lock("k").acquire().await.unwrap();
        // Each begins inside the last one, which ends before the next begins, or after.
        for overlaps in [false, true] {
            let mut last = guard.section();
            for _ in 0..1_000 {
                let inside = last.enter(frames);
                let mut next = guard.section();
                if overlaps {
                    within(&inside, || next.enter(|| ()));
                }
                drop(last);
                within(&inside, || next.enter(|| ()));
                last = next;
                assert!(kept(&last.enter(frames)) <= 2);
            }
        }
    }
}
