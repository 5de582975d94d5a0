//! The server's records of calls by links: SLOWLOG, MONITOR, LATENCY.

use farjump_fixtures::process::PATIENCE;

use crate::resp::{Client, Value};
use crate::server::{Start, library, on_each, ops, run_ops, until};

/// The commands of SLOWLOG, each as a line.
fn slow(entries: &Value) -> Vec<String> {
    let words = entries.elements().iter().map(|entry| entry.elements()[3].elements());
    words.map(|words| words.iter().map(Value::text).collect::<Vec<_>>().join(" ")).collect()
}

/// The events of LATENCY.
fn late(client: &mut Client) -> Vec<String> {
    let events = client.say("LATENCY LATEST");
    events.elements().iter().map(|event| event.elements()[0].text()).collect()
}

#[test]
fn slow_calls_of_links_are_shown_by_their_names() {
    on_each(|program| {
        let server = Start::new(program).args("load yes").run();
        let mut client = server.client();
        client.say("CONFIG SET slowlog-log-slower-than 2000 latency-monitor-threshold 2").worked();
        let link = server.link();
        assert_eq!(run_ops(&link, "set k v"), ["0"]);
        assert_eq!(run_ops(&link, "spin 200"), ["0"]);
        // Its reply left before the command ended.
        until("SLOWLOG to show the call", || {
            let shown = slow(&server.client().say("SLOWLOG GET 10"));
            shown.iter().any(|line| line == "FJ._RUN ops")
        });
        let shown = slow(&client.say("SLOWLOG GET 10"));
        let runs = shown.iter().filter(|line| line.starts_with("FJ._RUN"));
        assert!(runs.clone().all(|line| line == "FJ._RUN ops" || line == "FJ._RUN no call"), "{shown:?}");
        assert_eq!(runs.filter(|line| line.ends_with("ops")).count(), 1, "{shown:?}");
        assert!(late(&mut client).iter().any(|name| name == "farjump:ops"));
        client.say("LATENCY RESET").worked();
        // Through a command, which has its own name.
        client
            .run(&[b"FJ.LOAD", b"mine", &std::fs::read(crate::server::library_file("ops")).unwrap()])
            .worked();
        client.run(&[b"FJ.CALL", b"mine", b"0", &ops("spin 200")]).worked();
        let shown = slow(&client.say("SLOWLOG GET 10"));
        assert!(shown.iter().any(|line| line.starts_with("FJ.CALL mine 0 ")), "{shown:?}");
        assert!(late(&mut client).iter().any(|name| name == "farjump:ops"));
        drop(server.shut_down());
    });
}

#[test]
fn monitors_see_calls_of_links_and_what_they_run() {
    on_each(|program| {
        let server = Start::new(program).run();
        let link = server.link();
        let mut monitor = server.client();
        monitor.say("MONITOR").worked();
        let calls: Vec<_> =
            (0..3).map(|_| link.inject(&library("ops"), &ops("command incr n; get n")).unwrap()).collect();
        for call in calls {
            call.wait(PATIENCE).unwrap();
        }
        let (mut runs, mut writes) = (Vec::new(), 0);
        while writes < 3 || runs.is_empty() {
            let line = monitor.reply().unwrap().text();
            runs.extend(line.contains("FJ._RUN").then(|| line.clone()));
            writes += usize::from(line.contains("\"incr\" \"n\""));
        }
        assert!(runs.iter().any(|line| line.contains("\"FJ._RUN\" \"ops")), "{runs:?}");
        // The server does not show turns in which no link does anything.
        let mut client = server.client();
        for _ in 0..100 {
            client.say("PING").worked();
        }
        client.say("ECHO over").worked();
        let mut runs = 0;
        loop {
            let line = monitor.reply().unwrap().text();
            runs += usize::from(line.contains("FJ._RUN"));
            if line.contains("over") {
                break;
            }
        }
        assert!(runs < 20, "{runs} in more than 100 turns");
        drop(server.shut_down());
    });
}
