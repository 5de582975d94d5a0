//! Options of the table on the command line, in the environment and in the file of `serve --config`.

use farjump::config::{Config, Interfaces, OptionInfo, Shape, TargetConfig};

use crate::workbench::{Workbench, finish, start_target};

/// Returns the options that `serve` shows in this build.
fn shown() -> impl Iterator<Item = &'static OptionInfo> {
    let is_built = |info: &&OptionInfo| {
        let feature = info.feature.or(info.needs.contains(&"bitcode").then_some("bitcode"));
        feature.is_none_or(|feature| match feature {
            "bitcode" => cfg!(feature = "bitcode"),
            "verbs" => cfg!(feature = "verbs"),
            _ => true,
        })
    };
    let rows = TargetConfig::rows().iter().map(|row| &row.info);
    rows.filter(|info| info.shown.contains(Interfaces::COMMAND_LINE)).filter(is_built)
}

/// Returns a value other than the default, as `--show-config` shows it.
fn sample(option: &OptionInfo) -> &'static str {
    match (option.shape, option.placeholder) {
        (Shape::Bytes, _) => "192K",
        (Shape::Count, _) => "7",
        (Shape::Duration, _) => "3s",
        (Shape::Flag, _) => "yes",
        (Shape::Path, _) => "folder/file",
        (Shape::Text, "ADDRESS") => "unix:other.sock",
        (Shape::Text, "NAME") => "shm",
        (Shape::Text, "NAME[:PORT]") => "rxe0:1",
        (Shape::Text, "MODE") => "always",
        (Shape::Text, "LEVEL") => "baseline",
        (Shape::Text, "WHEN") => "prefer",
        (Shape::Text, "TURNS") => "events",
        (Shape::List, "RIGHT,…") => "observe,call",
        (Shape::Text, _) => "words",
        (Shape::List, "MODE") => "always,local",
        (Shape::List, "ID|@FILE") => "edc1169992d9aed8ae348fa14a32de94,00000000000000000000000000000001",
        (Shape::List, "SONAME") => "liba.so.1,libb.so.1",
        (Shape::List, _) => "folder/liba.so,folder/libb.so",
        (Shape::Pairs, _) => "a=unix:a.sock,b=unix:b.sock",
        (shape, placeholder) => panic!("{}: no sample for {shape:?}, {placeholder}", option.name),
    }
}

#[test]
fn each_option_is_set_by_argument_variable_and_file_and_shown() {
    let bench = Workbench::new();
    let options: Vec<_> = shown().collect();
    assert!(options.len() > 40, "{} options", options.len());
    let lines: Vec<_> = options.iter().map(|info| format!("{} = '{}'\n", info.name, sample(info))).collect();
    bench.write("all.toml", lines.concat());
    let show = |args: &[String], variables: &[(String, &str)]| {
        let mut command = bench.farjump();
        command.args(["serve", "--show-config"]).args(args).envs(variables.iter().cloned());
        finish(&mut command).worked().text().to_owned()
    };
    // Each argument of a list of paths or addresses is one of its items.
    let argument = |info: &&OptionInfo| -> Vec<String> {
        let is_one = info.words || !matches!(info.shape, Shape::List | Shape::Pairs);
        let items = if is_one { vec![sample(info)] } else { sample(info).split(',').collect() };
        items.into_iter().map(|item| format!("--{}={item}", info.name)).collect()
    };
    let arguments: Vec<_> = options.iter().flat_map(argument).collect();
    let has_variable = |info: &OptionInfo| info.shown.contains(Interfaces::ENVIRONMENT);
    let by_variables = options.iter().filter(|info| has_variable(info));
    let variables: Vec<_> = by_variables.map(|info| (info.variable(), sample(info))).collect();
    let by_argument = show(&arguments, &[]);
    let by_variable = show(&[], &variables);
    let by_file = show(&["--config".to_owned(), "all.toml".to_owned()], &[]);
    for (number, info) in options.iter().enumerate() {
        let set = format!("{} = \"{}\"", info.name, sample(info));
        let variable =
            has_variable(info).then(|| (&by_variable, format!("the variable {}", info.variable())));
        let others = [
            (&by_argument, format!("--{}", info.name)),
            (&by_file, format!("all.toml, line {}", number + 1)),
        ];
        for (text, origin) in others.into_iter().chain(variable) {
            let line = format!("{set}  # {origin}");
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
    }
    // The output is a file for the next run.
    bench.write("shown.toml", &by_argument);
    let again = show(&["--config".to_owned(), "shown.toml".to_owned()], &[]);
    let values = |text: &str| -> Vec<_> {
        text.lines().map(|line| line.split("  # ").next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(values(&again), values(&by_argument));
}

#[test]
fn defaults_are_shown_and_those_without_a_value_are_comments() {
    let bench = Workbench::new();
    let shown = bench.run(["serve", "--show-config"]).worked();
    for line in [
        "# listen: none",
        "# max-frame: as the largest payload and code need",
        "max-sources = \"256\"  # the default",
        "rights = \"observe,call,inject\"  # the default",
        "clear = \"no\"  # the default",
    ] {
        assert!(shown.text().lines().any(|shown| shown == line), "{line}: {}", shown.text());
    }
    bench.write("defaults.toml", shown.text());
    let again = bench.run(["serve", "--config", "defaults.toml", "--show-config"]).worked();
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap_or(line).to_owned()).collect()
    };
    assert_eq!(values(again.text()), values(shown.text()));
}

#[test]
fn arguments_count_before_variables_and_those_before_the_file() {
    let bench = Workbench::new();
    bench.write("t.toml", "max-payload = \"3M\"\nmax_sources = 3\nmax-image = 4096\nclear = true\n");
    let mut command = bench.farjump();
    command.args(["serve", "--show-config", "--config", "t.toml", "--max-payload", "1M", "--clear=no"]);
    command.envs([("FARJUMP_MAX_PAYLOAD", "2M"), ("FARJUMP_MAX_SOURCES", "2")]);
    let done = finish(&mut command).worked();
    for line in [
        "max-payload = \"1M\"  # --max-payload",
        "max-sources = \"2\"  # the variable FARJUMP_MAX_SOURCES",
        "max-image = \"4K\"  # t.toml, line 3",
        "clear = \"no\"  # --clear",
    ] {
        assert!(done.text().lines().any(|shown| shown == line), "{line}: {}", done.text());
    }
}

#[test]
fn a_target_serves_with_the_options_of_its_file() {
    let bench = Workbench::new();
    let library = bench.sample("crc32");
    let text =
        format!("listen = \"{}\"\nmax-payload = 100\n[destination]\nnext = \"unix:b\"\n", bench.address());
    bench.write("serve.toml", text);
    let (serving, address) = start_target(bench.farjump().args(["serve", "--config", "serve.toml"]));
    assert_eq!(address, bench.address());
    bench.write("args", [7; 200]);
    bench.inject(&library, &["--args-file", "args"]).fails(3, &["--max-payload"]);
    serving.stop().worked();
}

#[test]
fn an_error_names_the_argument_the_variable_or_the_line() {
    let bench = Workbench::new();
    for (text, words) in [
        (
            "clear = true\nmax-payload = \"64X\"\n",
            "bad.toml, line 2: `max-payload`: `64X` is no number of bytes",
        ),
        (
            "max-paylod = 1\n",
            "bad.toml, line 1: `max-paylod` is no option of a target: did you mean `max-payload`?",
        ),
        ("\nmax-payload = \n", "bad.toml, line 2: "),
        ("max-payload = 1\nmax-payload = 2\n", "bad.toml, line 2: "),
        ("max-payload = 1\nmax_payload = 2\n", "bad.toml, line 2: `max_payload` is given twice"),
        ("key = \"k\"\n", "bad.toml, line 1: `key` is called `key-file` now"),
        ("llvm = \"a.so\"\n", "bad.toml, line 1: `llvm` has no effect without `bitcode`"),
        ("device = \"a:b:c\"\n", "bad.toml, line 1: `device`"),
        ("transport = \"pigeon\"\n", "bad.toml, line 1: `transport`: there is no transport `pigeon`"),
    ] {
        bench.write("bad.toml", text);
        finish(&mut bench.serving(&["--config", "bad.toml"])).fails(2, &[words]);
    }
    bench.write("bad.toml", "data = \"missing\"\n");
    let done = finish(&mut bench.serving(&["--config", "bad.toml"]));
    done.fails(1, &["bad.toml, line 1: cannot map `missing`"]);
    bench.run(["serve", "--config", "missing.toml"]).fails(1, &["cannot read `missing.toml`"]);
    for (variable, value, words) in [
        ("FARJUMP_MAX_PAYLOAD", "64X", "the variable FARJUMP_MAX_PAYLOAD: `64X` is no number of bytes"),
        ("FARJUMP_KEY", "k", "the variable FARJUMP_KEY: it is called FARJUMP_KEY_FILE now"),
        ("FARJUMP_CLEAR", "perhaps", "the variable FARJUMP_CLEAR: `perhaps` is neither yes nor no"),
    ] {
        finish(bench.serving(&[]).env(variable, value)).fails(2, &[words]);
    }
    for (args, words) in [
        (&["--max-payload", "64X"][..], "--max-payload: `64X` is no number of bytes"),
        (&["--max-sources", "1", "--max-sources", "2"], "--max-sources is given twice"),
        (&["--compile-timeout", "5s"], "--compile-timeout has no effect without `bitcode`"),
        (&["--max-paylod", "1"], "--max-paylod is no option of a target: did you mean `max-payload`?"),
        (&["--grce", "1s"], "'--grace'"),
    ] {
        finish(&mut bench.serving(args)).fails(2, &[words]);
    }
    bench.run(["serve"]).fails(2, &["--listen ADDRESS"]);
}

#[test]
fn an_old_name_is_refused_with_the_new_one() {
    let bench = Workbench::new();
    let serve = &["serve", "--listen", "unix:s"][..];
    let inject = &["inject", "x.so", "--to", "unix:s"][..];
    for (command, old, new) in [
        (serve, "--key", "key-file"),
        (serve, "--peer-key", "peer-key-file"),
        (serve, "--export", "export-library"),
        (serve, "--mode", "modes"),
        (serve, "--allow", "rights"),
        (serve, "--symbols", "debug-symbols"),
        (serve, "--mailbox", "mailbox-size"),
        (serve, "--allow-process-symbols", "process-symbols"),
        (serve, "--spin", "wait-policy"),
        (serve, "--objects-spill", "objects-spill-folder"),
        (inject, "--key", "key-file"),
        (&["stats", "--to", "unix:s"], "--key", "key-file"),
        (&["put", "x", "--to", "unix:s"], "--key", "key-file"),
    ] {
        let words = format!("{old} is called `{new}` now");
        bench.run([command, &[old, "1"]].concat()).fails(2, &[&words]);
        let json = bench.run([command, &[&format!("{old}=1"), "--json"]].concat());
        json.fails(2, &[&words]);
        assert!(json.err.starts_with('{'), "{}", json.err);
    }
}
