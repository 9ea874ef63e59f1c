mod keeper;
mod key_shard;
mod webhook_sender;
