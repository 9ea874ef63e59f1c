mod client;
mod request_id;
