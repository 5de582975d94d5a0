//! Has MPI's compiler make what the binding of MPI lacks.

#[cfg(feature = "mpi")]
fn main() {
    println!("cargo::rerun-if-changed=src/replace.c");
    cc::Build::new().compiler("mpicc").file("src/replace.c").compile("replace");
}

#[cfg(not(feature = "mpi"))]
fn main() {}
