//! The table of the futures of the public API. A row makes one future, of which each poll and each call is disturbed once.

mod attribute;
mod client;
mod guards;
mod layer;
mod leader;
mod locks;
mod numbers;

use std::pin::Pin;
use std::rc::Rc;

use distlock_tests::LockKind;
use tokio::task::yield_now;

use crate::calls;
use crate::cuts::Subject;
use crate::play::{Backend, Play};

/// Who has the key when the future begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    Free,
    /// Another task of this client. Others wait behind the future.
    BehindOwn,
    /// The same with a task of another client.
    BehindOther,
}

pub(crate) const WORLDS: [World; 3] = [World::Free, World::BehindOwn, World::BehindOther];

/// What is true after each cut, beside what is always true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Another client gets the whole lock.
    Free,
    /// It changes a number, and may have done so or not.
    Either,
}

type Setup = Pin<Box<dyn Future<Output = Subject>>>;

/// One future.
pub(crate) struct Row {
    pub(crate) name: String,
    /// What it plays, as the text of the API names it, without arguments.
    pub(crate) items: &'static [&'static str],
    pub(crate) kind: LockKind,
    pub(crate) world: World,
    pub(crate) after: After,
    /// The backend that alone has this future.
    pub(crate) only: Option<Backend>,
    pub(crate) setup: Box<dyn Fn(Rc<Play>) -> Setup>,
}

impl Row {
    /// What `setup` does happens before, undisturbed. The future that it makes is disturbed.
    fn new<Making, Made>(
        items: &'static [&'static str],
        kind: LockKind,
        setup: impl Fn(Rc<Play>) -> Making + 'static,
    ) -> Self
    where
        Making: Future<Output = Made> + 'static,
        Made: Future<Output = ()> + 'static,
    {
        let setup = move |play| -> Setup {
            let making = setup(play);
            Box::pin(async move { Box::pin(making.await) as Subject })
        };
        Self {
            name: format!("{} ({kind:?})", items[0]),
            items,
            kind,
            world: World::Free,
            after: After::Free,
            only: None,
            setup: Box::new(setup),
        }
    }

    /// More about it, for its name.
    fn also(mut self, what: impl std::fmt::Display) -> Self {
        self.name = format!("{}, {what}", self.name);
        self
    }

    fn world(mut self, world: World) -> Self {
        self.world = world;
        match world {
            World::Free => self,
            world => self.also(format!("{world:?}")),
        }
    }

    fn changes_a_number(mut self) -> Self {
        self.after = After::Either;
        self
    }

    fn only(mut self, backend: Backend) -> Self {
        self.only = Some(backend);
        self
    }
}

/// The whole table.
pub(crate) fn all() -> Vec<Row> {
    let parts = [
        leader::rows(),
        locks::rows(),
        guards::rows(),
        numbers::rows(),
        client::rows(),
        layer::rows(),
        attribute::rows(),
    ];
    parts.into_iter().flatten().collect()
}

/// The names of the rows of a backend.
pub(crate) fn names(backend: Backend) -> Vec<String> {
    let rows = all().into_iter();
    let its = rows.filter(|row| row.only.is_none_or(|only| only == backend));
    its.map(|row| row.name).collect()
}

/// The body of a section, which is a function of the user.
async fn body() {
    for _ in 0..2 {
        calls::call("a body");
        yield_now().await;
    }
}

async fn fallible_body() -> Result<(), distlock::Error> {
    body().await;
    Ok(())
}
