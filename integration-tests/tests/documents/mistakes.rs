//! The table of mistakes in `docs/guide/writing-ifuncs.md`. Each test makes a mistake, and compares the message with its
//! row.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use farjump::build::{Options, build};
use farjump_tools::all_work;

use crate::hex;

const MAIN: &str = "FARJUMP_IFUNC void t_main(void *payload, size_t size, void *args)\n";
const SILENT: &str = "(void)payload; (void)size; (void)args;";

/// A mistake, by its row, and the inputs that make it.
struct Mistake {
    row: &'static str,
    /// Source file, whose name shows the language.
    file: &'static str,
    code: String,
    flags: &'static [&'static str],
    /// Compiled first by gcc to this object or library, with these flags instead of farjump's.
    object: Option<&'static str>,
    /// Requested NAME.
    name: &'static str,
}

fn mistake(row: &'static str, file: &'static str, declarations: &str, body: &str) -> Mistake {
    let code = format!(
        "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(t)\n{declarations}\n{MAIN}{{ {SILENT} {body} }}\n"
    );
    Mistake { row, file, code, flags: &[], object: None, name: "t" }
}

fn mistakes() -> Vec<Mistake> {
    // Without the header, for a user's own compiler.
    let plain = "void t_main(void *p, unsigned long n, void *a) { (void)p; (void)n; (void)a; }\n\
                 unsigned long t_payload_get_max_size(void *a, unsigned long n) { (void)a; return n; }\n\
                 int t_payload_init(void *p, unsigned long n, void *a, unsigned long m)\n\
                 { (void)p; (void)n; (void)a; (void)m; return 0; }\n";
    let by_gcc = |row, object, flags| Mistake {
        object: Some(object),
        flags,
        code: plain.to_owned(),
        ..mistake(row, "t.c", "", "")
    };
    vec![
        Mistake {
            flags: &["-fexceptions"],
            ..mistake("a C++ exception is thrown", "t.cpp", "", "if (size == 3) throw 7;")
        },
        mistake(
            "a static object has a destructor",
            "t.cpp",
            "struct S { int v; S(); ~S(); };",
            "static S local; *(int *)args = local.v;",
        ),
        mistake(
            "a static object has a constructor",
            "t.cpp",
            "struct S { int v; S(); }; static S global;",
            "*(int *)args = global.v;",
        ),
        Mistake {
            code: format!(
                "#include <farjump_ifunc.h>\nvoid t_main(void *payload, size_t size, void *args)\n{{ {SILENT} }}\n"
            ),
            ..mistake("a routine in C++ is not `extern \"C\"`", "t.cpp", "", "")
        },
        Mistake {
            flags: &["-fno-pic", "-mcmodel=small", "-fvisibility=default"],
            ..mistake(
                "code is for a fixed address",
                "t.c",
                "",
                "static int own[4]; *(int **)args = own + size;",
            )
        },
        by_gcc("code was not compiled to the end", "t.o", &["-c", "-fPIC", "-flto"]),
        by_gcc("an object is for another machine", "t.o", &["-c", "-fPIC", "-m32"]),
        by_gcc("a routine is hidden", "t.o", &["-c", "-fPIC", "-fvisibility=hidden"]),
        by_gcc("a library is given for an object", "t.o", &["-shared", "-fPIC"]),
        Mistake { name: "other", ..mistake("the name is another one", "t.c", "", "") },
        mistake(
            "both payload routines are there",
            "t.c",
            "int t_payload_init_shrink(void *p, size_t *n, void *a, size_t m)\n\
             { (void)p; (void)n; (void)a; (void)m; return 0; }",
            "",
        ),
        // Without the macro, which the compiler checks.
        mistake(
            "the payload's alignment cannot be had",
            "t.c",
            "static const unsigned align __asm__(\"t_payload_align\")\n\
             __attribute__((used, section(\".farjump.payload_align\"))) = 24;",
            "",
        ),
        Mistake {
            code: plain.replace("return n;", "return 64 / n;"),
            flags: &["-fsanitize=undefined"],
            ..mistake("payload routines need a sanitizer", "t.c", "", "")
        },
        Mistake {
            code: "#include <farjump_ifunc.h>\nFARJUMP_COPY_ARGS(t)\nint t_main = 7;\n".to_owned(),
            ..mistake("`NAME_main` is no function", "t.c", "", "")
        },
    ]
}

/// Makes the mistake, and returns the message of `build`, as one line without the folder.
fn message(mistake: &Mistake) -> String {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let source = folder.path().join(mistake.file);
    fs::write(&source, &mistake.code).expect("a file can be written");
    let mut options = Options {
        inputs: vec![source.clone()],
        output: folder.path().join("libt.so"),
        name: Some(mistake.name.to_owned()),
        // Messages have the names of sections and symbols that gcc makes.
        cc: Some("gcc".to_owned()),
        ..Options::default()
    };
    match mistake.object {
        Some(object) => {
            let object = folder.path().join(object);
            let done = Command::new("gcc").args(mistake.flags).arg(&source).arg("-o").arg(&object).output();
            let done = done.expect("gcc is there");
            assert!(done.status.success(), "{}: {}", mistake.row, String::from_utf8_lossy(&done.stderr));
            options.inputs = vec![object];
        }
        None => options.cflags = mistake.flags.iter().map(|&flag| flag.to_owned()).collect(),
    }
    let place = format!("{}/", folder.path().display());
    build(&options).expect_err(mistake.row).to_string().replace(&place, "").replace('\n', " ")
}

/// Mistake and message of each row of the table; a message that ends with `…` is only the beginning.
fn rows() -> BTreeMap<String, String> {
    let guide = hex::read("docs/guide/writing-ifuncs.md");
    let (_, table) = guide.split_once("| mistake | message |\n|---|---|\n").expect("the guide has the table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 2, "{row}");
        (cells[0].to_owned(), cells[1].to_owned())
    })
    .collect()
}

#[test]
fn each_mistake_in_the_table_gives_the_message_beside_it() {
    let mut rows = rows();
    if !all_work(&["gcc"]) {
        return;
    }
    let cxx = all_work(&["g++"]);
    let mut differing = String::new();
    for mistake in mistakes() {
        let row = rows.remove(mistake.row).unwrap_or_default();
        if mistake.file.ends_with(".cpp") && !cxx {
            continue;
        }
        let message = message(&mistake);
        let same = match row.strip_suffix('…') {
            Some(beginning) => !beginning.trim().is_empty() && message.starts_with(beginning.trim_end()),
            None => message == row,
        };
        if !same {
            differing += &format!("| {} | {message} |\nand the guide: {row}\n", mistake.row);
        }
    }
    assert!(differing.is_empty(), "{differing}");
    assert!(rows.is_empty(), "nobody makes these mistakes: {rows:?}");
}
