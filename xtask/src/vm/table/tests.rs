//! Tests of the table itself.

use std::process::Command as Program;

use super::*;

#[test]
fn every_script_is_one_that_a_shell_understands() {
    let mut commands = [alone(KERNELS[1], false), alone(KERNELS[0], true), pair(false), pair(true)].concat();
    commands.push(Command::shell_line("true", 1));
    for command in commands {
        for script in [Some(command.script), command.serving.map(|(script, _)| script)].into_iter().flatten()
        {
            let checked = Program::new("sh").args(["-n", "-c", &script]).output().unwrap();
            assert!(checked.status.success(), "{}: {checked:?}", command.name);
        }
    }
}

#[test]
fn no_command_serves_on_the_port_of_the_init_script() {
    for command in pair(true) {
        let (_, port) = command.serving.unwrap();
        assert_ne!(port, 7000, "{}: init.sh has this port", command.name);
    }
}

#[test]
fn the_whole_has_all_lines_on_each_kernel() {
    assert_eq!(alone(KERNELS[0], true).len(), ALONE.len());
    for series in KERNELS {
        assert!(alone(series, false).len() < alone(series, true).len(), "{series}");
    }
}

#[test]
fn each_line_runs_on_as_many_kernels_as_the_table_says() {
    let names = |series| alone(series, false).into_iter().map(|command| command.name);
    for (name, on, ..) in ALONE {
        let on_kernels = KERNELS.into_iter().filter(|series| names(series).any(|own| own == *name)).count();
        let expected = match on {
            On::Each => 2,
            On::First | On::Disorder => 1,
            On::None => 0,
        };
        assert_eq!(on_kernels, expected, "{name}");
    }
}
