mod guard;
mod qr;
mod signature;
mod window;
