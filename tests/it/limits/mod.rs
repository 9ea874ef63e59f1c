mod client;
mod client_model;
