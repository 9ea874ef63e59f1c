mod breakdown;
mod guard;
mod qr;
pub mod series;
mod signature;
mod window;
