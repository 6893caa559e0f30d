//! Mutexes that count how many of them a thread has locked, so that a test fails if [foreign code](crate::sync::foreign) runs under one.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::explored::mutex;

thread_local! {
    /// How many guards of these mutexes the thread has.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// How many mutexes of this crate the thread has locked.
pub(crate) fn mutexes_held() -> u32 {
    // A thread that ends has destroyed its values by now, and holds nothing.
    HELD.try_with(Cell::get).unwrap_or(0)
}

/// Counts one locked mutex until it is dropped, on the thread that made it.
#[derive(Debug)]
struct Counted(PhantomData<*const ()>);

impl Counted {
    fn new() -> Self {
        // Fails only while the thread ends. What it locks then is not counted.
        let _ended = HELD.try_with(|held| held.set(held.get() + 1));
        Self(PhantomData)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ended = HELD.try_with(|held| held.set(held.get() - 1));
    }
}

/// The guard of a mutex, counted.
#[derive(Debug)]
pub(crate) struct Guard<G> {
    guard: G,
    _counted: Counted,
}

impl<G> Guard<G> {
    /// `guard` has locked the mutex.
    fn new(guard: G) -> Self {
        Self {
            guard,
            _counted: Counted::new(),
        }
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// The guard of a [`Mutex`].
pub(crate) type MutexGuard<'a, T> = Guard<mutex::MutexGuard<'a, T>>;

/// A mutex of `parking_lot` whose guards are counted.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(mutex::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(mutex::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        Guard::new(self.0.lock())
    }

    pub(crate) fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock_for(time).map(Guard::new)
    }
}

/// A read/write lock of `parking_lot` whose guards are counted.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(mutex::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(mutex::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> Guard<mutex::RwLockReadGuard<'_, T>> {
        Guard::new(self.0.read())
    }

    pub(crate) fn write(&self) -> Guard<mutex::RwLockWriteGuard<'_, T>> {
        Guard::new(self.0.write())
    }
}
