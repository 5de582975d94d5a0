//! Compiles the constants that the binding of MPI lacks, with the compiler that the binding was made with.

#[cfg(feature = "mpi")]
fn main() {
    println!("cargo::rerun-if-changed=src/constants.c");
    // rsmpi reads the same variable. It is not rebuilt when the variable changes, so neither is this.
    let mpicc = std::env::var_os("MPICC").unwrap_or_else(|| "mpicc".into());
    cc::Build::new().compiler(mpicc).file("src/constants.c").compile("constants");
}

#[cfg(not(feature = "mpi"))]
fn main() {}
