//! A command's changed view of this machine: without some files, with folders that belong to another user, with
//! folders of other file systems.
//!
//! A command runs in namespaces of mounts and processes of its own. An overlay covers each folder that is changed, so
//! nothing changes outside, and no process outlives the command. Namespaces need privileges; `View::obstacle`
//! returns the reason if they are missing.

use std::path::{Path, PathBuf};

use crate::process::{Failed, Interrupt, Run};

/// The user of commands that root does not run, and its group.
pub(crate) const USER: &str = "1000";

/// Makes the changes that stand before `--`, runs the command behind it, and fails if the command leaves processes
/// behind. `$1` is an empty folder.
const ENTER: &str = r#"
set -e
scratch=$1
shift
mount -t tmpfs -o mode=755 farjump "$scratch"
number=0
opened=/nowhere
cover() {
    [ "$1" != "$covered" ] || return 0
    number=$((number + 1))
    upper=$scratch/$number
    mkdir "$upper" "$upper.work"
    mount -t overlay farjump -o "metacopy=on,lowerdir=$1,upperdir=$upper,workdir=$upper.work" "$1"
    covered=$1
}
while [ "$1" != -- ]; do
    case $1 in
    hide) cover "${2%/*}" && rm -r "$2" ;;
    open) cover "$2" && chmod a+rx "$2" && opened=$2 ;;
    own)
        case $2 in "$opened"/*) ;; *) cover "$2" ;; esac
        # Others may remove files meanwhile. It goes on then, and gives the folder itself last.
        said=$(chown -R USER:USER "$2" 2>&1) || [ "$(stat -c %u "$2")" = USER ] || { echo "$said" >&2 && exit 1; }
        ;;
    folder) mkdir "$scratch/$2" && mount -t tmpfs -o "$3" farjump "$scratch/$2" && shift ;;
    esac
    shift 2
done
shift
status=0
"$@" || status=$?
left() {
    for process in /proc/[0-9]*; do
        name= state= pid=
        while read -r word value rest; do
            case $word in Name:) name=$value ;; State:) state=$value ;; Pid:) pid=$value && break ;; esac
        done 2>/dev/null <"$process/status" || continue
        [ "$pid" = $$ ] || [ "$state" = Z ] || return 0
    done
    return 1
}
# One that was told to end may take a moment.
tries=0
while left && [ $tries -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
if left; then
    echo "left behind: process $name" >&2
    status=1
fi
exit $status
"#;

/// A view of this machine.
#[derive(Debug)]
pub(crate) struct View<'i> {
    /// The changes, as words of [`ENTER`].
    changes: Vec<PathBuf>,
    /// Programs with their arguments that start the command.
    through: Vec<String>,
    /// An empty folder for the changed files, outside of all covered folders.
    scratch: tempfile::TempDir,
    /// Begins the lines of commands, and ends their names.
    name: String,
    interrupt: &'i Interrupt,
}

impl<'i> View<'i> {
    /// The machine as it is, in a view called `name`.
    ///
    /// # Errors
    /// When there is no folder for temporary files.
    pub(crate) fn new(name: &str, interrupt: &'i Interrupt) -> Result<View<'i>, Failed> {
        let scratch = tempfile::tempdir();
        let scratch = scratch.map_err(|error| Failed::Because(format!("a folder for a view: {error}")))?;
        Ok(View { changes: Vec::new(), through: Vec::new(), scratch, name: name.to_owned(), interrupt })
    }

    /// Hides files. Those of one folder should stand together.
    #[must_use]
    pub(crate) fn without(mut self, files: &[PathBuf]) -> Self {
        self.changes.extend(files.iter().flat_map(|file| ["hide".into(), file.clone()]));
        self
    }

    /// Gives folders, with all in them, to [`USER`], and opens the folders above them to all.
    #[must_use]
    pub(crate) fn owned(mut self, folders: &[&Path]) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let closed = |folder: &&Path| {
            folder.metadata().is_ok_and(|folder| folder.permissions().mode() & 0o005 != 0o005)
        };
        for folder in folders {
            // Only the uppermost one: the overlay over it also shows those in it.
            let closed = folder.ancestors().skip(1).filter(closed).last();
            self.changes.extend(closed.into_iter().flat_map(|closed| ["open".into(), closed.to_owned()]));
            self.changes.extend(["own".into(), (*folder).to_owned()]);
        }
        self
    }

    /// Adds an empty folder of a file system with these options of mount(8), and returns its path.
    pub(crate) fn folder(&mut self, name: &str, options: &str) -> PathBuf {
        self.changes.extend(["folder", name, options].map(PathBuf::from));
        self.scratch.path().join(name)
    }

    /// Starts commands through a program that replaces itself with them: `taskset -c 0`.
    #[must_use]
    pub(crate) fn through(mut self, words: &[&str]) -> Self {
        self.through.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Tries a view with a folder that belongs to another user. Returns the reason why there are no views here, if
    /// there are none.
    ///
    /// # Errors
    /// When interrupted, or there is no folder for temporary files.
    pub(crate) fn obstacle(interrupt: &Interrupt) -> Result<Option<String>, Failed> {
        let view = View::new("a view", interrupt)?;
        let given =
            tempfile::tempdir().map_err(|error| Failed::Because(format!("a folder to give: {error}")))?;
        let tried = view.owned(&[given.path()]).run("true", &[]).quiet().run()?;
        let why = tried.output.trim().replace('\n', "; ");
        Ok((!tried.status.success())
            .then(|| format!("root may, in namespaces of mounts and processes with overlays: {why}")))
    }

    /// A command for `program` in the view.
    pub(crate) fn run(&self, program: impl AsRef<Path>, args: &[&str]) -> Run<'i> {
        let name = program.as_ref().file_name().unwrap_or_default();
        Run::new("unshare", self.interrupt)
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"])
            .args([ENTER.replace("USER", USER).as_str(), "sh"])
            .args([self.scratch.path()])
            .args(&self.changes)
            .args(["--"])
            .args(&self.through)
            .args([program.as_ref()])
            .args(args)
            .shown_as(format!("{} {} ({})", name.display(), args.join(" "), self.name))
            .mark(&format!("{} | ", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_view_hides_gives_and_adds_and_lets_no_process_go_on() {
        let interrupt = Interrupt::install().unwrap();
        if let Some(why) = View::obstacle(&interrupt).unwrap() {
            return say!("skipped: {why}");
        }
        let top = crate::scratch::folder().unwrap();
        let (closed, hidden) = (top.path().join("closed"), top.path().join("bin/hidden"));
        let plain = top.path().join("plain");
        fs::create_dir(&plain).unwrap();
        fs::create_dir_all(closed.join("own")).unwrap();
        fs::create_dir(top.path().join("bin")).unwrap();
        fs::write(closed.join("own/file"), "").unwrap();
        fs::write(&hidden, "").unwrap();
        fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let mut view = View::new("a view", &interrupt).unwrap();
        let folder = view.folder("a folder", "mode=1777,noexec");
        let view = view.without(std::slice::from_ref(&hidden)).owned(&[&plain]).owned(&[&closed.join("own")]);
        let view = view.through(&["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"]);
        let script = |script: &str| {
            let run = view.run("sh", &["-c", script, "sh"]).env("PLAIN", &plain);
            run.args([&hidden, &closed, &folder])
                .quiet()
                .limit(std::time::Duration::from_secs(60))
                .run()
                .unwrap()
        };
        let ended = script(
            "set -e; : >\"$PLAIN/new\"; ! test -e \"$1\"; echo y >\"$2/own/file\"; : >\"$2/own/new\"; printf '#!/bin/sh\\n' >\"$3/x\"; chmod 700 \"$3/x\"; ! \"$3/x\"",
        );
        assert!(ended.status.success(), "{}", ended.output);
        assert!(hidden.exists() && !closed.join("own/new").exists() && !plain.join("new").exists());
        // Outside, the folders keep their owner.
        for given in [&plain, &closed.join("own"), &closed.join("own/file")] {
            assert_eq!(given.metadata().unwrap().uid(), hidden.metadata().unwrap().uid(), "{given:?}");
        }
        assert_eq!(fs::read(closed.join("own/file")).unwrap(), b"");
        let ended = script("sleep 600 >/dev/null 2>&1 &");
        assert!(
            !ended.status.success() && ended.output.contains("left behind: process sleep"),
            "{}",
            ended.output
        );
        assert_eq!(script("exit 3").status.code(), Some(3));
        // One view that fails is no obstacle to views.
        let ended = view.owned(&[&top.path().join("nowhere")]).run("true", &[]).quiet().run().unwrap();
        assert!(!ended.status.success() && ended.output.contains("nowhere"), "{}", ended.output);
    }
}
