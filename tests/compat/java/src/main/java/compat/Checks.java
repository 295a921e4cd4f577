package compat;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ExecutionException;

/** Runs named checks one after the other, prints a line for each, and remembers those that failed. */
final class Checks {
    interface Body {
        void run() throws Exception;
    }

    private final List<String> failed = new ArrayList<>();
    private int passed;

    void check(String name, Body body) {
        try {
            body.run();
            passed++;
            System.out.println("PASS " + name);
        } catch (Throwable problem) {
            failed.add(name);
            System.out.println("FAIL " + name + ": " + problem);
            problem.printStackTrace(System.out);
        }
    }

    /** Prints the sum; the exit code of the program. */
    int finish() {
        System.out.println(passed + " passed, " + failed.size() + " failed " + failed);
        return failed.isEmpty() ? 0 : 1;
    }

    static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void isTrue(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError("not so: " + what);
        }
    }

    /** The body must fail with this exception, alone or as the cause of an ExecutionException. */
    static void refused(Class<? extends Throwable> expected, Body body) throws Exception {
        try {
            body.run();
        } catch (Exception problem) {
            Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
            isTrue(expected.isInstance(cause), "refused with " + expected.getSimpleName() + ", not " + cause);
            return;
        }
        throw new AssertionError("not refused with " + expected.getSimpleName());
    }
}
