//! The frames around running code, by which a nested acquire finds the hold that encloses it.
//!
//! A frame records that code runs inside a guard's critical section. Frames are in a thread-local only while the future of a
//! scope is polled or dropped. They follow the future from thread to thread and never leak into another task of tokio's.
//!
//! # Invariants
//! 1. Frames are taken at the first poll and never where a future is made: a future that is spawned from a scope does not
//!    inherit it.
//! 2. A frame is closed when its scope completes, is lost or is dropped. A closed frame is passed over.
//! 3. A body is polled and dropped inside its frames, so that code in a `Drop` sees them too.
//! 4. Frames are seen by the task that has entered them alone. A body may poll other tasks in the same call, as that of
//!    `LocalSet::run_until` does.

use std::cell::RefCell;
use std::iter;
use std::sync::Arc;

use uuid::Uuid;

use crate::hold::{Around, HoldRef, HoldView};
use crate::resource::key::{Key, Resource};
use crate::resource::kind::Nesting;
use crate::resource::owner::Owner;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Flag, Mutex, foreign, task};

/// One scope around running code, with the frames of all keys of its guard. There is one value for all of them, since a
/// guard may have thousands of keys.
#[derive(Debug)]
pub(crate) struct EnclosingScope {
    /// Closed parents are dropped. Otherwise a chain of tasks, each started from inside the scope of the one before,
    /// would keep all these scopes in memory.
    pub(super) parent: Mutex<Frames>,
    pub(super) view: HoldView,
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

/// Frames, and the task that has entered them. The main future of a `block_on` has no id.
struct EnteredFrames {
    frames: Frames,
    task: Option<task::Id>,
}

crate::sync::thread_local! {
    static ENTERED: RefCell<EnteredFrames> = const {
        RefCell::new(EnteredFrames {
            frames: None,
            task: None,
        })
    };
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
    // Fails only while the thread ends. No scope is around what runs then.
    let (frames, task) = ENTERED
        .try_with(|entered| {
            let entered = entered.borrow();
            Some((entered.frames.clone()?, entered.task))
        })
        .ok()
        .flatten()?;
    (task == task::try_id()).then_some(frames)
}

/// Restores the frames that were there before, also on unwinding.
struct Restore(EnteredFrames);

impl Drop for Restore {
    fn drop(&mut self) {
        swap_in(&mut self.0);
    }
}

/// Swaps these frames with the thread's. Does nothing on a thread that is ending: this may be called from a drop, which
/// must not panic.
fn swap_in(entered: &mut EnteredFrames) {
    let _ending = ENTERED.try_with(|current| std::mem::swap(&mut *current.borrow_mut(), entered));
}

/// Runs a function inside these frames.
pub(crate) fn within<R>(frames: &Frames, run: impl FnOnce() -> R) -> R {
    let mut entered = EnteredFrames {
        frames: frames.clone(),
        task: task::try_id(),
    };
    swap_in(&mut entered);
    let _restore = Restore(entered);
    foreign::call_user(run)
}

/// The open scopes, innermost first.
pub(super) fn outwards(frames: &Frames) -> impl Iterator<Item = Arc<EnclosingScope>> + use<> {
    let mut innermost = frames.clone();
    pass_closed(&mut innermost);
    iter::successors(innermost, |scope| scope.parent())
}

/// Replaces closed scopes by their innermost open parent.
fn pass_closed(frames: &mut Frames) {
    while let Some(scope) = frames
        && scope.is_closed()
    {
        // In two steps: the assignment may drop the scope whose mutex the first one locks.
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
    pub(super) fn new(mut parent: Frames, view: HoldView) -> Self {
        pass_closed(&mut parent);
        // This drops the closed parents of the next link as well. Closed scopes further out were dropped when that link
        // began, or are dropped when it ends.
        if let Some(around) = &parent {
            around.parent();
        }
        for member in view.members().iter() {
            member.hold().in_a_scope.set();
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

    pub(super) fn close(&self) {
        // A scope closes when it completes, and again when it is dropped.
        if self.is_closed() {
            return;
        }
        for member in self.view.members().iter() {
            // One flag for all of them. Each stores it under its own mutex, so that from then on nothing nests into that hold.
            member.hold().close(&self.closed);
        }
        // After the holds: what this wakes must find the frames closed.
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
                |member: &Arc<HoldRef>| (member.hold().owner(), member.hold().resource.key.clone());
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

    /// Its scope, and with it those further out.
    pub(crate) fn outwards(&self) -> Frames {
        Some(Arc::clone(&self.scope))
    }

    pub(crate) fn closed(&self) -> &AtomicBool {
        &self.scope.closed
    }

    /// Completes when the frame closes.
    pub(crate) async fn closing(&self) {
        self.scope.closing.wait().await;
    }
}
