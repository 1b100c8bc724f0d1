"""What record.py and record_npu.py share: neutral library paths, and the files that they write."""

import json
import os
import pickle
import re

PATHS = [
    (r"^.*/(?:site|dist)-packages/", "/usr/lib/python3/dist-packages/"),
    (r"^.*/lib/python3\.\d+/", "/usr/lib/python3/"),
    (r"^.*/(Python-3[^/]*)/", r"/usr/src/\1/"),
    (r"^/.*/([^/]+\.so[^/]*)$", r"/usr/lib/\1"),
]
paths, done = {}, set()


def neutral(x):
    """Neutralises library paths in the frames, in place, so that structure and sharing stay."""
    if id(x) in done:
        return
    done.add(id(x))
    if isinstance(x, dict):
        name = x.get("filename")
        if name is not None:
            if name not in paths:
                paths[name] = name
                for pattern, to in PATHS:
                    paths[name] = re.sub(pattern, to, paths[name])
            x["filename"] = paths[name]
        x = x.values()
    for y in x:
        if isinstance(y, (dict, list, tuple)):
            neutral(y)


def neutral_text(snap):
    """Neutralises library paths in the texts of tracebacks, in place: forward frames and sources of FX nodes."""
    entries = [e for t in snap["device_traces"] for e in t]
    entries += [each for s in snap["segments"] for each in (s, *s["blocks"])]
    for each in entries:
        if "forward_frames" in each:
            each["forward_frames"] = [neutral_line(line) for line in each["forward_frames"]]
        for frame in each.get("frames", ()):
            if "fx_original_trace" in frame:
                frame["fx_original_trace"] = neutral_line(frame["fx_original_trace"])


def neutral_line(text):
    """Returns a text with the paths of `File "…"` neutralised."""
    for pattern, to in PATHS:
        text = re.sub(r'(?<=File ")[^"\n]+(?=")', lambda found: re.sub(pattern, to, found[0]), text)
    return text


def write(snap, truth, out):
    """Writes FOLDER/snapshot.pickle and FOLDER/truth.json, and ends the process without freeing anything."""
    truth["entries"] = [len(t) for t in snap["device_traces"]]
    os.makedirs(out, exist_ok=True)
    neutral(snap)
    with open(out + "/snapshot.pickle", "wb") as f:
        pickle.dump(snap, f, protocol=4)
    n = os.path.getsize(out + "/snapshot.pickle")
    with open(out + "/truth.json", "w") as f:
        f.write(json.dumps(truth, indent=1) + "\n")
    print(f"{out}: {n} bytes, entries {truth['entries']}, {len(snap['segments'])} segments", flush=True)
    os._exit(0)
