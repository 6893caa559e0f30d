package distlock.peer;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** A method of Redisson's API that its oldest tested version does not have. */
record Newer(Method method) {
    /** Throws {@link UnsupportedOperationException} where this version of Redisson lacks it. */
    static Newer method(String type, String name, Class<?>... parameters) {
        try {
            return new Newer(Class.forName(type).getMethod(name, parameters));
        } catch (ReflectiveOperationException e) {
            throw new UnsupportedOperationException(type + "." + name + " is not in this version of Redisson", e);
        }
    }

    Object invoke(Object target, Object... arguments) throws Exception {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw e;
        }
    }
}
