//! The target that `FUZZ_TARGET` names: one program in the place of ten, for it takes long to link one.
#![no_main]

#[path = "../targets.rs"]
mod targets;

use std::sync::LazyLock;

static CHOSEN: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    let found = targets::ALL.into_iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("there is no target {name}")).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| CHOSEN(bytes));
