//! Connects to the address that it is given, and returns the error from `main`.

fn main() -> Result<(), farjump::Error> {
    let address = std::env::args().nth(1).unwrap_or_default();
    farjump::Link::connect(&address).map(drop)
}
