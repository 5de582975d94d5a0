//! Functions beside the scripts in Lua that do the same, and the replies of functions.

use std::fs;
use std::path::Path;

use farjump_fixtures::process::PATIENCE;

use crate::protobuf::varint;
use crate::resp::{Client, Value, encoded};
use crate::server::{RUST, Server, Start, library, library_file, on_each};

/// Jobs that people script: a script for each, and functions in C and Rust.
const JOBS: [&str; 5] = ["token_bucket", "token_bucket.rs", "leaders", "downsample", "protobuf_sum"];

fn load(client: &mut Client, names: &[&str]) {
    for name in names {
        let code = fs::read(library_file(name)).unwrap();
        client.run(&[b"FJ.LOAD", name.as_bytes(), &code]).worked();
    }
}

/// A job's script.
fn script(job: &str) -> Vec<u8> {
    let job = job.trim_end_matches(RUST);
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../ifuncs/samples/kv/{job}.lua"))).unwrap()
}

/// Messages with all kinds of fields; field 3 counts.
fn messages() -> Vec<u8> {
    let message = |index: u64| {
        let counted = [varint(3 << 3), varint(index * 1000)].concat();
        let string = [varint(2 << 3 | 2), varint(200), vec![b'x'; 200]].concat();
        let doubled = [varint(20 << 3 | 1), vec![1; 8], varint(21 << 3 | 5), vec![2; 4]].concat();
        let message = [counted, string, doubled, varint(4 << 3), varint(7)].concat();
        [varint(message.len() as u64), message].concat()
    };
    (1..=100).flat_map(message).collect()
}

fn fill(client: &mut Client) {
    client.run(&[b"SET", b"messages", &messages()]).worked();
    for index in 0..250_u32 {
        let (name, score) = (format!("m{index}"), f64::from(index * 37 % 250) / 4.0);
        client.say(&format!("ZADD scores {score} {name}")).worked();
        client.say(&format!("HSET teams {name} {}", if index % 3 == 0 { "red" } else { "blue" })).worked();
        let time = 1_000_000 + index * 700;
        client.say(&format!("XADD measured {time}-0 other 1 value {}", f64::from(index) / 8.0)).worked();
    }
    client.say("XADD measured 2000000-0 value none other 1").worked();
}

/// The texts in a reply, in order. Numbers are written as the shortest text.
fn texts(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Array(elements) => elements.iter().for_each(|element| texts(element, into)),
        Value::Integer(number) => into.push(number.to_string()),
        Value::Nil => into.push("nil".to_owned()),
        value => {
            let text = value.clone().worked().text();
            into.push(text.parse::<f64>().map_or(text, |number| number.to_string()));
        }
    }
}

fn flat(value: &Value) -> Vec<String> {
    let mut into = Vec::new();
    texts(value, &mut into);
    into
}

/// Returns whether a time in microseconds is that of the server's clock.
fn is_now(client: &mut Client, time: i64) -> bool {
    let server_time = flat(&client.say("TIME"));
    let [seconds, rest] = [0, 1].map(|part| server_time[part].parse::<i64>().unwrap());
    (0..PATIENCE.as_micros() as i64).contains(&(seconds * 1_000_000 + rest - time))
}

/// Runs a job in each way, with the same keys and arguments. `prepare` runs before each.
#[track_caller]
fn run_all_forms(server: &Server, job: &str, words: &[&[u8]], prepare: &str) -> Vec<String> {
    let mut client = server.client();
    let script = script(job);
    client.say(prepare).worked();
    let scripted = flat(&client.run(&[&[b"EVAL", &script[..]], words].concat()));
    client.say(prepare).worked();
    let called = flat(&client.run(&[&[b"FJ.CALL", job.as_bytes()], words].concat()));
    assert_eq!(called, scripted, "{job} by FJ.CALL");
    client.say(prepare).worked();
    let reply = server.link().inject(&library(job), &encoded(words)).unwrap().wait(PATIENCE).unwrap();
    let linked = flat(&Value::read(&mut &reply[..]).unwrap());
    assert_eq!(linked, scripted, "{job} by a link");
    called
}

#[test]
fn jobs_that_people_script_come_out_the_same_as_functions() {
    on_each(|program| {
        let server = Start::new(program).args("load local").run();
        let mut client = server.client();
        load(&mut client, &JOBS);
        fill(&mut client);

        for job in ["token_bucket", "token_bucket.rs"] {
            let bucket = |state: &str, more: &[&str]| {
                let arguments = ["1", "bucket", "10", "3", "4"].iter().chain(more);
                let words = arguments.map(|word| word.as_bytes()).collect::<Vec<_>>();
                let told = run_all_forms(&server, job, &words, state);
                let mut client = server.client();
                let tokens = client.say("HGET bucket tokens").text().parse::<f64>().unwrap();
                assert_eq!(tokens.to_string(), told[1]);
                assert!(matches!(client.say("PTTL bucket"), Value::Integer(1..)));
                told
            };
            assert_eq!(bucket("DEL bucket", &["5000000"]), ["1", "6"]);
            let state = "HSET bucket tokens 1.25 time 5000000";
            assert_eq!(bucket(state, &["5100000"]), ["0", "1.55"]);
            assert_eq!(bucket(state, &["6000000"]), ["1", "0.25"]);
            assert_eq!(bucket(state, &["4000000"]), ["0", "1.25"], "time that goes back");
            assert_eq!(bucket("DEL bucket", &[]), ["1", "6"]);
            let time = client.say("HGET bucket time").text().parse().unwrap();
            assert!(is_now(&mut client, time), "{job}: {time}");
            let refused = client.say(&format!("FJ.CALL {job} 1 bucket 10 three 4"));
            assert!(refused.error().contains("number"), "{job}: {refused:?}");
        }

        let leaders = run_all_forms(&server, "leaders", &[b"2", b"scores", b"teams", b"5", b"red"], "PING");
        assert_eq!(leaders.len(), 10, "{leaders:?}");
        let none = run_all_forms(&server, "leaders", &[b"2", b"scores", b"teams", b"5", b"green"], "PING");
        assert_eq!(none, [""; 0]);
        run_all_forms(&server, "leaders", &[b"2", b"scores", b"teams", b"128", b"blue"], "PING");

        let spans = run_all_forms(&server, "downsample", &[b"1", b"measured", b"value", b"10000"], "PING");
        assert_eq!(spans[..3], ["1000000", "15", "0.875"]);
        assert_eq!(spans.len(), 3 * 18);
        run_all_forms(&server, "downsample", &[b"1", b"none", b"value", b"10000"], "PING");

        let sum = run_all_forms(&server, "protobuf_sum", &[b"1", b"messages", b"3"], "PING");
        assert_eq!(sum, ["5050000"]);
        run_all_forms(&server, "protobuf_sum", &[b"1", b"messages", b"4"], "PING");
        run_all_forms(&server, "protobuf_sum", &[b"1", b"none", b"3"], "PING");
        client.run(&[b"SET", b"cut", &messages()[..100]]).worked();
        let cut = client.say("FJ.CALL protobuf_sum 1 cut 3");
        assert!(cut.error().contains("a message is cut"), "{cut:?}");
        drop(server.shut_down());
    });
}

#[test]
fn a_function_replies_with_values_of_the_servers_protocol() {
    on_each(|program| {
        let server = Start::new(program).args("load local").run();
        let mut client = server.client();
        load(&mut client, &["replies"]);
        let mut call = |steps: &str| client.say(&format!("FJ.CALL replies 0 {steps}"));
        let bulk = |text: &str| Value::Bulk(text.into());
        assert_eq!(call("i"), Value::Integer(-5));
        assert_eq!(call("d"), bulk("0.5"));
        assert_eq!(call("s"), bulk("a\r\nb"));
        let nested = Value::Array(vec![Value::Array(vec![Value::Integer(-5), bulk("0.5")]), bulk("a\r\nb")]);
        assert_eq!(call("aaids"), nested);
        assert_eq!(call("b"), bulk("bytes"));
        for (steps, part) in [
            ("ii", "two values"),
            ("ai", "lacks 1 elements"),
            ("ib", "farjump_reply"),
            ("bi", "farjump_reply"),
            ("n", "no number"),
        ] {
            let answered = call(steps);
            assert!(answered.error().contains(part), "{steps}: {answered:?}");
        }
        for (step, text, written) in [
            ("I", "-9223372036854775808", "-9223372036854775808"),
            ("D", "1e300", "1e+300"),
            ("D", "-.5", "-0.5"),
            ("D", "inf", "inf"),
        ] {
            assert_eq!(call(&format!("{step} {text}")), bulk(written));
        }
        for wrong in ["I 01", "I 1.5", "D nan", "D 0x10", "D x"] {
            let answered = call(wrong);
            assert!(answered.error().contains("is no such number"), "{wrong}: {answered:?}");
        }
        let Value::Integer(time) = call("t") else { panic!("the time is a number") };
        assert!(is_now(&mut client, time), "{time}");
        // In a script, and in the third version of the protocol.
        let scripted = b"return redis.call('FJ.CALL', 'replies', 0, 'i') + 6";
        assert_eq!(client.run(&[b"EVAL", scripted, b"0"]), Value::Integer(1));
        client.say("HELLO 3").worked();
        assert_eq!(client.say("FJ.CALL replies 0 d"), Value::Double("0.5".to_owned()));

        let link = server.link();
        let replies = library("replies");
        let inject = |payload: &[u8]| link.inject(&replies, payload).unwrap().wait(PATIENCE);
        let reply = inject(&encoded(&[b"0", b"aid"])).unwrap();
        assert_eq!(&reply[..], b"*2\r\n:-5\r\n,0.5\r\n");
        let refused = inject(b"aid").unwrap_err().to_string();
        assert!(refused.contains("numkeys key"), "{refused}");
        drop(server.shut_down());
    });
}
