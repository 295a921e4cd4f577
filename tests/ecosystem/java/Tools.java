import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's tools one after the other in one process: a line of stdin is CLASS, arguments and input, divided by tabs. */
public class Tools {
    /** Thrown instead of the exit of the process. Some tools catch it, so the first code counts. */
    private static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static Integer ended;

    private static void end(int code) {
        if (ended == null) ended = code;
        throw new Ended();
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            var said = new ByteArrayOutputStream();
            var out = new PrintStream(said, true);
            System.setOut(out);
            System.setErr(out);
            System.setIn(new ByteArrayInputStream(parts[parts.length - 1].replace("\\n", "\n").getBytes()));
            ended = null;
            int code = run(parts[0], Arrays.copyOfRange(parts, 1, parts.length - 1));
            out.flush();
            answers.println("code " + code);
            answers.println(said.toString().stripTrailing());
            answers.println("\u0004");
            answers.flush();
        }
    }

    private static int run(String tool, String[] arguments) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return ended == null ? 0 : ended;
        } catch (InvocationTargetException raised) {
            if (raised.getCause() instanceof Ended) return ended;
            System.out.println("raised " + raised.getCause());
            return -1;
        }
    }
}
