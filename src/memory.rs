//! Returning free memory to the system.
//!
//! An allocator with a heap for each thread keeps what a thread has freed until that thread allocates again. A thread that becomes
//! idle after much work calls [`release_free`].

pub mod words;

use std::sync::OnceLock;

static RELEASE: OnceLock<fn()> = OnceLock::new();

/// Sets how a thread returns its free memory. The program does: it chooses the allocator.
pub fn set_release(release: fn()) {
    // Fails only if it was set before.
    let _ = RELEASE.set(release);
}

/// Returns the free memory of this thread to the system, if the program has said how.
pub fn release_free() {
    if let Some(release) = RELEASE.get() {
        release();
    }
}
