mod breakdown;
mod guard;
mod qr;
mod series;
mod signature;
mod window;
