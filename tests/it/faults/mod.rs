//! What must hold though processes are killed, disks are full, and starts go wrong.

mod behind_proxies;
mod changes_seen;
mod child_keys;
mod cluster;
mod disk_budget;
mod drain;
mod first_start;
mod keep_alive;
mod kill;
pub mod load;
mod master_key;
mod names;
mod out_of_reach;
mod read_only;
mod repeated_requests;
mod rolling;
mod start;
mod two_nodes;
mod unwritable;
mod webhook_log;
mod webhooks_kill;
