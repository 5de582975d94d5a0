//! A service on tokio that is injected into, and a client that awaits its calls.
//!
//! ```text
//! tokio-service serve ADDRESS [TRANSPORT]
//! tokio-service ask ADDRESS LIBSUM.SO HOST:PORT [TRANSPORT]
//! ```
//!
//! The service has rows. Tasks of it serve them line by line over TCP (`put KEY VALUE`, `get KEY`). One more
//! serves injected functions at `ADDRESS`, which is `unix:PATH` or `tcp:127.0.0.1:PORT`. It prints `ready`,
//! the address for lines, and `ADDRESS`. The client fills rows over TCP, has sums of them made by calls that
//! it awaits all at once, and compares.

mod descriptor;
mod source;
mod target;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farjump::{Library, Link, Target};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use source::Source;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// State shared by all tasks of the service.
#[derive(Default)]
struct Store {
    rows: Mutex<BTreeMap<u64, u64>>,
    /// Number of times that the task of the target has been woken.
    woken: AtomicU64,
}

impl Store {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a line, and returns the response.
    fn answer(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>();
        match words[..] {
            ["put", key, value] => match (number(key), number(value)) {
                (Ok(key), Ok(value)) => self.rows().insert(key, value).unwrap_or(0).to_string(),
                _ => "put takes two numbers".to_owned(),
            },
            ["get", key] => match number(key) {
                Ok(key) => self.rows().get(&key).copied().unwrap_or(0).to_string(),
                Err(_) => "get takes a number".to_owned(),
            },
            ["woken"] => self.woken.load(Ordering::Relaxed).to_string(),
            _ => "no such command: put KEY VALUE, get KEY, woken".to_owned(),
        }
    }
}

/// Export for injected functions. It waits for another task no longer than a row takes to read or write.
extern "C" fn store_get(store: *const Arc<Store>, key: u64) -> u64 {
    // SAFETY: injected code passes its target_args on, which is the store that the target borrows.
    let store = unsafe { &*store };
    store.rows().get(&key).copied().unwrap_or(0)
}

/// Serves lines and injected functions until one of them fails.
async fn serve(address: String, transport: Option<String>) -> Result<(), Failed> {
    let store = Arc::new(Store::default());
    let lines = TcpListener::bind("127.0.0.1:0").await?;
    let place = lines.local_addr()?;
    let (mut target_args, shared) = (Arc::clone(&store), Arc::clone(&store));
    // A target may move between threads, and so may a task that has one: the runtime runs it on whichever is
    // free.
    let injected = tokio::spawn(async move {
        let target = {
            let builder = Target::listen(&address)
                .args(&mut target_args)
                .export("store_get", store_get as extern "C" fn(_, _) -> _);
            match transport {
                Some(transport) => builder.transport(&transport).build()?,
                None => builder.build()?,
            }
        };
        println!("ready {place} {}", target.address());
        target::serve(target, &shared.woken).await
    });
    tokio::select! {
        ended = injected => match ended?? {},
        ended = serve_lines(lines, store) => ended,
    }
}

async fn serve_lines(listener: TcpListener, store: Arc<Store>) -> Result<(), Failed> {
    loop {
        let (stream, _) = listener.accept().await?;
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let (input, mut output) = stream.into_split();
            let mut lines = BufReader::new(input).lines();
            // A failed read or write ends this connection, and nothing else.
            while let Ok(Some(line)) = lines.next_line().await {
                let answer = format!("{}\n", store.answer(&line));
                if output.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// A connection to the service's lines.
struct Lines(BufReader<TcpStream>);

impl Lines {
    async fn ask(&mut self, line: &str) -> Result<u64, Failed> {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        Ok(answer.trim().parse()?)
    }
}

/// Rows that the client fills.
const ROWS: u64 = 100;
/// Keys of the longest call: 8 MB, which no socket takes at once.
const MANY: u64 = 1_000_000;

/// Fills rows, and has sums made of them while it changes some.
async fn ask(address: &str, library: &str, lines: &str, transport: Option<&str>) -> Result<(), Failed> {
    let mut lines = Lines(BufReader::new(TcpStream::connect(lines).await?));
    for key in 0..ROWS {
        lines.ask(&format!("put {key} {}", key * key)).await?;
    }

    // Connecting waits for the peer, so it must not run on a thread of tasks.
    let mut builder = Link::builder(address);
    if let Some(transport) = transport {
        builder = builder.transport(transport);
    }
    let link = tokio::task::spawn_blocking(|| builder.connect()).await??;
    let source = Rc::new(Source::new(link)?);
    let sum = Rc::new(Library::open(library)?);

    // All of them are in flight at the same time, on one link. They stay on the thread of the link.
    let mut calls = JoinSet::new();
    for key in 0..ROWS - 2 {
        let (source, sum) = (Rc::clone(&source), Rc::clone(&sum));
        calls.spawn_local(async move {
            let keys: Vec<u8> = [key, key + 1, key + 2].into_iter().flat_map(u64::to_ne_bytes).collect();
            let reply = tokio::time::timeout(Duration::from_secs(60), source.inject(&sum, &keys)).await??;
            Ok::<_, Failed>((key, reply.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))))
        });
    }
    let middle = lines.ask("get 50").await?;
    let mut right = 0;
    while let Some(replied) = calls.join_next().await {
        let (key, total) = replied??;
        let expected: u64 = (key..key + 3).map(|key| key * key).sum();
        if total != Some(expected) {
            return Err(format!("rows {key} to {} sum up to {expected}, not {total:?}", key + 2).into());
        }
        right += 1;
    }
    println!("row 50 is {middle}, and {right} sums are right");

    lines.ask("put 4 1000").await?;
    let keys: Vec<u8> = [3_u64, 4, 5].into_iter().flat_map(u64::to_ne_bytes).collect();
    let reply = source.inject(&sum, &keys).await?;
    let total = reply.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    println!("with 1000 in row 4, rows 3, 4 and 5 sum up to {}", total.unwrap_or(0));

    // More than is sent at once: the task sleeps until there is credit, and others run meanwhile.
    let keys: Vec<u8> = (0..MANY).flat_map(|at| (at % ROWS).to_ne_bytes()).collect();
    let (reply, row) = tokio::join!(source.inject(&sum, &keys), lines.ask("get 4"));
    let total = reply?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    println!("{MANY} keys, with {} in row 4, sum up to {}", row?, total.unwrap_or(0));
    Ok(())
}

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address, ref more @ ..] if more.len() < 2 => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(serve(address.to_owned(), more.first().map(|name| (*name).to_owned())))
        }
        ["ask", address, library, lines, ref more @ ..] if more.len() < 2 => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            tokio::task::LocalSet::new()
                .block_on(&runtime, ask(address, library, lines, more.first().copied()))
        }
        _ => Err(
            "usage: tokio-service serve ADDRESS [TRANSPORT] | ask ADDRESS LIBSUM.SO HOST:PORT [TRANSPORT]"
                .into(),
        ),
    }
}
