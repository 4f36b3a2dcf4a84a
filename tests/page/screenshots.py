#!/usr/bin/env python3
"""Screenshots of the page of `--metrics` in headless Chromium, to be looked at (docs/testing.md).

screenshots.py URL DIR [SECONDS]: waits SECONDS (20) for charts to fill. Fails on errors that the page logs,
requests to other hosts, and pages wider than their window. Chromium is told what to do over pipes.
"""
import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from urllib.parse import urlsplit

# Name, width, height, colours, whether the full length is wanted.
SHOTS = [
    ("light", 1400, 900, "light", False),
    ("dark", 1400, 900, "dark", False),
    ("full", 1400, 900, "light", True),
    ("phone", 390, 844, "light", False),
    ("phone-full", 390, 844, "dark", True),
]


class Chromium:
    def __init__(self, profile):
        from_us, self.to_it = os.pipe()
        self.from_it, to_us = os.pipe()

        def descriptors():
            # It reads from 3 and writes to 4; neither may be overwritten before it is copied.
            spare = [os.dup(from_us), os.dup(to_us)]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        command += [f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            command, preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(from_us)
        os.close(to_us)
        self.buffer, self.count, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def message(self, patience):
        while b"\0" not in self.buffer:
            if not select.select([self.from_it], [], [], max(0, patience))[0]:
                return None
            read = os.read(self.from_it, 1 << 20)
            if not read:
                sys.exit("Chromium has ended")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.count += 1
        request = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to_it, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message(60)
            if message is None:
                sys.exit(f"Chromium does not answer {method}")
            if message.get("id") != self.count:
                self.events.append(message)
            elif "error" in message:
                sys.exit(f"{method}: {message['error']}")
            else:
                return message["result"]

    def watch(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if message := self.message(left):
                self.events.append(message)


def main():
    url, folder = sys.argv[1], sys.argv[2]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 20
    os.makedirs(folder, exist_ok=True)
    faults = []
    with tempfile.TemporaryDirectory() as profile:
        browser = Chromium(profile)
        for domain in ["Page", "Runtime", "Log", "Network"]:
            browser.call(domain + ".enable")
        browser.call("Page.navigate", url=url)
        browser.watch(seconds)
        for name, width, height, colours, is_full in SHOTS:
            scale = 2 if width < 500 else 1
            browser.call(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                mobile=width < 500,
            )
            features = [{"name": "prefers-color-scheme", "value": colours}]
            browser.call("Emulation.setEmulatedMedia", features=features)
            browser.watch(1.5)
            image = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_full)["data"]
            with open(os.path.join(folder, name + ".png"), "wb") as file:
                file.write(base64.b64decode(image))
            wide = browser.call(
                "Runtime.evaluate", expression="document.documentElement.scrollWidth - innerWidth", returnByValue=True
            )["result"]["value"]
            if wide > 0:
                faults.append(f"{name}: {wide} pixels wider than the window")
        for event in browser.events:
            method, about = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                faults.append(json.dumps(about)[:400])
            if method == "Network.requestWillBeSent":
                asked = about["request"]["url"]
                if not asked.startswith("data:") and urlsplit(asked).netloc != urlsplit(url).netloc:
                    faults.append("asked " + asked)
        browser.call("Browser.close")
        browser.process.wait()
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


main()
