//! Locks of data that stays whole if a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a thread has panicked with it. Only for data that such a panic does not leave half changed: nothing panics while
/// the lock is held, or each change is a single step.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
