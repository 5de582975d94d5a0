//! Connects to the address in its argument, and returns the error from `main`.

fn main() -> Result<(), farjump::Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    farjump::Link::connect(&address).map(drop)
}
