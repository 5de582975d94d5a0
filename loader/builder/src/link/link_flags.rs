//! The author's flags that reach the link of a library.
//!
//! Flags for the compiler may change a link: with `-ffast-math` the driver adds an object whose constructor changes the
//! arithmetic of the process that loads the library. With `-pg`, `-fsanitize=…` and `--coverage` it adds their
//! libraries. So a link gets only the flags that name its inputs, tools and folders.

/// Flags that name inputs of the link, with an operand behind them or in the same word.
const WITH_OPERAND: [&str; 7] = ["-l", "-L", "-Xlinker", "-z", "-u", "-T", "-B"];
/// Beginnings of flags of one word.
const BEGINNINGS: [&str; 7] =
    ["-Wl,", "-fuse-ld=", "--ld-path=", "--sysroot=", "--gcc-toolchain=", "-stdlib=", "-static-lib"];
/// Flags of compilers with an operand in a separate word, which is no file to be linked.
const OPERANDS_OF_COMPILERS: [&str; 28] = [
    "-D",
    "-U",
    "-I",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isysroot",
    "-imultilib",
    "-x",
    "-A",
    "-G",
    "-MF",
    "-MT",
    "-MQ",
    "-o",
    "-aux-info",
    "--param",
    "-arch",
    "-target",
    "-mllvm",
    "-Xclang",
    "-Xpreprocessor",
    "-Xassembler",
];

/// Those of `flags` that concern the link: files, libraries and folders, options of the linker, and its choice.
pub(crate) fn link_flags(flags: &[String]) -> Vec<&str> {
    let mut taken = Vec::new();
    let mut flags = flags.iter().map(String::as_str);
    while let Some(flag) = flags.next() {
        if OPERANDS_OF_COMPILERS.contains(&flag) {
            flags.next();
        } else if WITH_OPERAND.contains(&flag) {
            taken.push(flag);
            taken.extend(flags.next());
        } else if !flag.starts_with('-')
            || BEGINNINGS.iter().any(|start| flag.starts_with(start))
            || ["-l", "-L", "-B"].iter().any(|start| flag.starts_with(start))
        {
            taken.push(flag);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_gets_what_is_linked_and_no_flag_of_the_compiler() {
        let given = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let linked = "-lz -l m -L/a -L b -Wl,--as-needed -Xlinker -x a.o libb.a -z defs -fuse-ld=lld -B/c";
        assert_eq!(link_flags(&given(linked)), given(linked));
        for compiled in [
            "-ffast-math -Ofast -O3 -funsafe-math-optimizations -mdaz-ftz -mpc64 -pg -fopenmp -flto -fsanitize=address",
            "-static-pie -shared-libgcc -pthread --coverage -fprofile-generate -march=native -std=c11 -g -s -r -static",
            "-I inc -D NAME -include first.h -isystem sys -x c -Xclang -load -mllvm -x --param a=1 -MF deps.d -Iinc",
        ] {
            assert_eq!(link_flags(&given(compiled)), Vec::<&str>::new());
        }
    }
}
