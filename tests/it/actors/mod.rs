mod hit_counter;
mod keeper;
mod key_shard;
mod webhook_backlogs;
mod webhook_fairness;
mod webhook_metrics;
mod webhook_pool;
mod webhook_sender;
